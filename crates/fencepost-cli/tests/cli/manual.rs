//! `completions` and `man`: what a shell and man(1) make of them.

use crate::support::Home;

#[test]
fn shell_takes_the_completions_and_knows_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(["completions", shell]).exits(0).stdout;
        assert!(script.contains("max-runtime") && script.contains("status"), "{shell}");
    }
    home.shell("fencepost completions bash >completions").exits(0);
    let offered = |begun: &str| {
        let words = format!("COMP_WORDS=(fencepost {begun}) COMP_CWORD=1");
        let ask = format!("_fencepost fencepost {begun} fencepost; echo ${{COMPREPLY[@]}}");
        home.shell(&format!("bash -c '. ./completions && {words} && {ask}'"))
            .exits(0)
            .stdout
            .trim()
            .to_owned()
    };
    assert_eq!(offered("sta"), "status");
    // What is not for users is not offered.
    assert_eq!(offered("gi"), "");
    assert!(home.run(["completions", "tcsh"]).exits(64).stderr.contains("bash"));
}

#[test]
fn every_command_has_a_page() {
    let home = Home::new();
    let top = home.run(["man"]).exits(0).stdout;
    assert!(top.starts_with(".ie") || top.contains(".TH"), "{top}");
    assert!(top.contains("fencepost\\-run(1)"), "{top}");
    let run = home.run(["man", "run"]).exits(0).stdout;
    assert!(run.contains("fencepost\\-run") && run.contains("max\\-runtime"), "{run}");
    let seal = home.run(["man", "fence", "seal"]).exits(0).stdout;
    assert!(seal.contains("fencepost fence seal") || seal.contains("fencepost\\-fence\\-seal"), "{seal}");
    assert!(home.run(["man", "nothing"]).exits(64).stderr.contains("there is no command"));
}

#[test]
fn help_fits_a_screen_and_begins_with_what_most_people_need() {
    let home = Home::new();
    let help = home.run(["--help"]).exits(0).stdout;
    assert_eq!(help, home.run(["-h"]).exits(0).stdout);
    assert_eq!(help, home.run([""; 0]).exits(64).stderr);
    let lines: Vec<&str> = help.lines().collect();
    assert!(lines.len() <= 50, "{} lines:\n{help}", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{help}");
    for first in ["fencepost run", "fencepost status", "fencepost advise"] {
        assert!(lines[..8].iter().any(|line| line.contains(first)), "{help}");
    }
}
