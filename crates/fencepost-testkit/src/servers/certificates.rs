//! A throw-away certificate authority and a server's certificate of it, for 127.0.0.1 and localhost.
//!
//! `openssl` makes them, which every machine has that runs the servers; both are worthless after a week.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed;

/// The files of a server that speaks TLS, all in PEM.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// New certificates in `folder`, which must exist.
    ///
    /// # Panics
    /// When `openssl` is not installed or fails.
    pub fn new(folder: &Path) -> Self {
        let certificates = Self { folder: folder.to_owned() };
        std::fs::write(certificates.settings(), SETTINGS).expect("a file can be made in the folder");
        certificates.make("authority", &certificates.authority(), &certificates.file("authority.key"), &[]);
        let (authority, key) = (certificates.authority(), certificates.file("authority.key"));
        let signed_by = [Path::new("-CA"), &authority, Path::new("-CAkey"), &key];
        certificates.make("server", &certificates.certificate(), &certificates.key(), &signed_by);
        certificates
    }

    /// The authority's certificate, which a client is to trust.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.crt")
    }

    /// The server's certificate, which a client may show as well.
    pub fn certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// The server's private key.
    pub fn key(&self) -> PathBuf {
        self.file("server.key")
    }

    fn settings(&self) -> PathBuf {
        self.file("openssl.cnf")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn make(&self, kind: &str, certificate: &Path, key: &Path, signed_by: &[&Path]) {
        let mut command = Command::new(installed("openssl"));
        command.args(["req", "-x509", "-days", "7", "-nodes"]);
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-extensions", kind, "-subj", &format!("/CN=fencepost test {kind}"), "-config"]);
        command.arg(self.settings()).arg("-out").arg(certificate).arg("-keyout").arg(key).args(signed_by);
        let output = command.output().expect("what is installed can be started");
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Clients refuse a server that shows the certificate of an authority, so each has its own extensions.
const SETTINGS: &str = "\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
";
