//! The [service file](https://www.postgresql.org/docs/current/libpq-pgservice.html): settings under a name.
//!
//! Invariant: a message names the file and the line and never shows it, since it may hold a password.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fencepost_core::{BackendUrl, Result};

use super::environment::Environment;
use super::settings::{Origin, Setting, is_idle, keyword, variable};

/// What the service `name` says, in the user's file or else in that of the machine.
///
/// # Errors
/// `InvalidArgument` when neither defines it, or the definition is broken.
pub(super) fn settings(url: &BackendUrl, name: &str, environment: &Environment) -> Result<Vec<Setting>> {
    let mut looked_in = Vec::new();
    for (file, is_required) in files(url, environment)? {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_required => continue,
            Err(error) => {
                return Err(url.wrong(format!("cannot read the service file {}: {error}", file.display())));
            }
        };
        let found = definition(&text, &file, name).map_err(|(line, flaw)| {
            url.wrong(format!("the service {name:?} in {}, line {line}: {flaw}", file.display()))
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        looked_in.push(file.display().to_string());
    }
    let wrong = url.wrong(format!("there is no service {name:?}"));
    Err(match &looked_in[..] {
        [] => wrong.hint("there is no service file; write ~/.pg_service.conf or set PGSERVICEFILE"),
        files => wrong.hint(format!("write [{name}] and its settings in {}", files.join(" or "))),
    })
}

/// The files in their order, and whether each has to be there.
fn files(url: &BackendUrl, environment: &Environment) -> Result<Vec<(PathBuf, bool)>> {
    let users = match variable(url, environment, "PGSERVICEFILE")? {
        Some(file) => Some((PathBuf::from(file), true)),
        None => environment.in_home(".pg_service.conf").map(|file| (file, false)),
    };
    let directory = variable(url, environment, "PGSYSCONFDIR")?.map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| environment.service_directory.clone());
    Ok(users.into_iter().chain([(directory.join("pg_service.conf"), false)]).collect())
}

/// What `text` says about a service, or else the line that is wrong and why. Other services may be as they like.
fn definition(text: &str, file: &Path, name: &str) -> Result<Option<Vec<Setting>>, (usize, &'static str)> {
    let mut found: Option<Vec<Setting>> = None;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_ascii();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(title) = text.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            let is_it = title.strip_prefix(name).is_some_and(|rest| rest.starts_with(']'));
            found = is_it.then(Vec::new);
        } else if let Some(found) = &mut found {
            let origin = Origin::Service { file: file.to_owned(), line };
            found.extend(setting(text, origin).map_err(|flaw| (line, flaw))?);
        }
    }
    Ok(found)
}

/// The setting in one line, unless it changes nothing here. As in libpq no blank may stand around the equals sign.
fn setting(text: &str, origin: Origin) -> Result<Option<Setting>, &'static str> {
    if text.starts_with("ldap") {
        return Err("services are not looked up by LDAP");
    }
    let (name, value) = text.split_once('=').ok_or("it is not of the form keyword=value")?;
    match name {
        "service" => Err("a service cannot name another one"),
        name if is_idle(name) => Ok(None),
        name => {
            let keyword = keyword(name).ok_or("libpq has no such keyword")?;
            Ok(Some(Setting { keyword, value: value.to_owned(), origin }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
[other]\njunk\n[one]\n# comment\n  host=h   \nport=11\nport=12\napplication_name=x\n[one]\nport=13\n\
[blank]\nhost = h\n[typo]\nhots=secret\n[nested]\nservice=one\n[bare]\nhost\n[directory]\nldap://h/\n[empty]\n";

    fn values(name: &str) -> Result<Option<Vec<String>>, (usize, &'static str)> {
        let found = definition(FILE, Path::new("f"), name)?;
        let shown = |setting: Setting| format!("{}={}", setting.keyword, setting.value);
        Ok(found.map(|settings| settings.into_iter().map(shown).collect()))
    }

    #[test]
    fn service_ends_at_the_next_title() {
        let expected = ["host=h", "port=11", "port=12"].map(str::to_owned).to_vec();
        assert_eq!(values("one"), Ok(Some(expected)));
        assert_eq!(values("empty"), Ok(Some(Vec::new())));
        assert_eq!(values("on"), Ok(None));
        assert_eq!(values("none"), Ok(None));
    }

    #[test]
    fn broken_line_is_named_by_its_number() {
        for (name, line) in
            [("other", 2), ("blank", 12), ("typo", 14), ("nested", 16), ("bare", 18), ("directory", 20)]
        {
            let (found, flaw) = values(name).unwrap_err();
            assert_eq!(found, line, "{name}: {flaw}");
            assert!(!flaw.contains("secret"));
        }
    }
}
