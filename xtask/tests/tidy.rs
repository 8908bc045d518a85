//! The tree keeps the rules of tidy, and every rule finds a violation that was made up for it.
//!
//! A rule that finds nothing proves nothing; so each has a violation here, and beside it what only looks like one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use xtask::tidy::{self, Tree};

#[test]
fn tree_is_tidy() {
    let tree = Tree::read(xtask::root()).expect("the tree can be read");
    assert!(tree.has("crates/fencepost-core/src/clock.rs") && tree.has("Cargo.toml"), "it is the whole tree");
    let findings: Vec<String> = tidy::check(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn every_rule_finds_a_violation() {
    assert_eq!(tidy::rules().collect::<BTreeSet<_>>(), SHOWN.iter().copied().collect());
}

#[test]
fn finding_is_shown_with_its_file_and_line() {
    let findings = tidy::check(&Tree::of([("crates/a/src/b.rs", "//! B.\nfn get_b() {}\n")]));
    let message = "crates/a/src/b.rs:2: `get_b`: a method is named after what it gives, without `get_`";
    assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), [message]);
}

#[test]
fn tree_without_git_is_every_text_outside_target() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tree_without_git");
    for (path, bytes) in [("src/a.rs", &b"//! A.\n"[..]), ("picture", &[0xff]), ("target/b.rs", b"")] {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), bytes).unwrap();
    }
    let tree = Tree::read(&root).unwrap();
    assert_eq!(["src/a.rs", "picture", "target/b.rs"].map(|path| tree.has(path)), [true, false, false]);
}

/// Every finding as `rule path:line`.
fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let findings = tidy::check(&Tree::of(files.iter().copied()));
    findings.iter().map(|finding| format!("{} {}:{}", finding.rule, finding.path, finding.line)).collect()
}

/// One test for each: the rule finds this place and no rule finds another in these files.
macro_rules! violations {
    ($($name:ident: $rule:literal at $place:literal in $files:expr;)*) => {
        $(#[test] fn $name() { assert_eq!(findings(&$files), [concat!($rule, " ", $place)]); })*
        const SHOWN: &[&str] = &[$($rule),*];
    };
}

/// One test for each: no rule finds anything in these files.
macro_rules! near_misses {
    ($($name:ident: $files:expr;)*) => {
        $(#[test] fn $name() { assert_eq!(findings(&$files), [""; 0]); })*
    };
}

violations! {
    file_that_does_not_parse_is_found: "syntax" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b( {}\n")];
    file_without_a_head_is_found: "head" at "crates/a/src/b.rs:1" in
        [("crates/a/src/b.rs", "fn b() {}\n")];
    file_with_an_empty_head_is_found: "head" at "crates/a/src/b.rs:1" in
        [("crates/a/src/b.rs", "//!\n")];
    suite_without_a_head_is_found: "head" at "crates/a/tests/b.rs:1" in
        [("crates/a/tests/b.rs", "fn b() {}\n")];
    module_that_includes_its_head_is_found: "head" at "crates/a/src/b.rs:1" in
        [("crates/a/src/b.rs", "#![doc = include_str!(\"../README.md\")]\n")];
    long_head_is_found: "head" at "xtask/src/b.rs:9" in
        [("xtask/src/b.rs", &"//! B.\n".repeat(9))];
    long_file_is_found: "file_size" at "crates/a/src/b.rs:501" in
        [("crates/a/src/b.rs", &format!("//! B.\n{}", "\n".repeat(500)))];
    long_file_behind_its_tests_is_found: "file_size" at "crates/a/src/b.rs:504" in
        [("crates/a/src/b.rs", &format!("//! B.\n#[cfg(test)]\nmod tests {{\n}}\n{}", "\n".repeat(500)))];
    long_function_is_found: "function_size" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs", &format!("//! B.\n/// B.\nfn b() {{\n{}}}\n", "\n".repeat(69)))];
    long_method_is_found: "function_size" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs", &format!("//! B.\nimpl A for B {{\nfn b() {{\n{}}}\n}}\n", "\n".repeat(69)))];
    long_method_of_a_trait_is_found: "function_size" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs", &format!("//! B.\ntrait B {{\nfn b() {{\n{}}}\n}}\n", "\n".repeat(69)))];
    long_test_is_found: "function_size" at "crates/a/tests/b.rs:3" in
        [("crates/a/tests/b.rs", &format!("//! B.\n#[test]\nfn b() {{\n{}}}\n", "\n".repeat(69)))];
    long_function_in_a_macro_is_found: "function_size" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs", &format!("//! B.\nm! {{\nfn b(c in 0..9) {{\n{}}}\n}}\n", "\n".repeat(69)))];
    long_function_of_a_macro_is_found: "function_size" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs",
          &format!("//! B.\nmacro_rules! m {{ ($b:ident) => {{\nfn $b() {{\n{}}}\n}} }}\n", "\n".repeat(69)))];
    allowed_lint_is_found: "allow" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\n#[allow(dead_code)]\nfn b() {}\n")];
    lint_allowed_in_a_whole_file_is_found: "allow" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\n#![allow(dead_code)]\n")];
    lint_allowed_on_a_condition_is_found: "allow" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\n#[cfg_attr(unix, allow(dead_code))]\nfn b() {}\n")];
    lint_allowed_in_a_macro_is_found: "allow" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nm! { #[allow(dead_code)] fn b() {} }\n")];
    remark_of_what_is_left_to_do_is_found: "leftover" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\n// TODO: more\n")];
    remark_in_a_doc_comment_is_found: "leftover" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\n/// B (FIXME).\nfn b() {}\n")];
    remark_behind_a_string_is_found: "leftover" at "crates/a/tests/b.rs:2" in
        [("crates/a/tests/b.rs", "//! B.\nconst B: &str = \"ü\"; // XXX\n")];
    remark_in_a_script_is_found: "leftover" at "crates/a/lua/b.lua:1" in
        [("crates/a/lua/b.lua", "-- TODO\n")];
    unwritten_code_is_found: "leftover" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { todo!() }\n")];
    unimplemented_code_in_a_test_is_found: "leftover" at "crates/a/tests/b.rs:2" in
        [("crates/a/tests/b.rs", "//! B.\nfn b() { unimplemented!(\"b\") }\n")];
    unwrap_outside_tests_is_found: "unwrap" at "crates/a/src/b.rs:3" in
        [("crates/a/src/b.rs", "//! B.\nfn b() {\na().unwrap();\n}\n")];
    unwrap_in_a_macro_call_is_found: "unwrap" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { assert!(a().unwrap()); }\n")];
    unwrap_behind_the_tests_is_found: "unwrap" at "crates/a/src/b.rs:5" in
        [("crates/a/src/b.rs", "//! B.\n#[cfg(test)]\nmod tests {\n}\nfn b() { a().unwrap(); }\n")];
    printing_library_is_found: "print" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { println!(\"b\") }\n")];
    library_that_prints_errors_is_found: "print" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { std::eprint!(\"b\") }\n")];
    other_clock_is_found: "clock" at "crates/a/src/clock.rs:2" in
        [("crates/a/src/clock.rs", "//! B.\nfn b() { std::time::Instant::now(); }\n")];
    other_wall_clock_is_found: "clock" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { SystemTime::now(); }\n")];
    sleeping_thread_is_found: "clock" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nuse std::thread::sleep;\n")];
    sleeping_task_is_found: "clock" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nasync fn b() { tokio::time::sleep(c).await }\n")];
    other_randomness_is_found: "clock" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() { rustix::rand::getrandom(c); }\n")];
    name_that_is_no_sentence_is_found: "sentence" at "crates/a/tests/b.rs:3" in
        [("crates/a/tests/b.rs", "//! B.\n#[test]\nfn test_b() {}\n")];
    property_that_is_no_sentence_is_found: "sentence" at "crates/a/tests/b.rs:2" in
        [("crates/a/tests/b.rs", "//! B.\nproptest! { #[test] fn test_b(c in 0..9) {} }\n")];
    getter_is_found: "getter" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nimpl A { fn get_b(&self) {} }\n")];
    getter_of_a_trait_is_found: "getter" at "xtask/src/b.rs:2" in
        [("xtask/src/b.rs", "//! B.\ntrait A { fn get_b(&self); }\n")];
    type_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nstruct RedisMutex;\n")];
    word_behind_capitals_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nstruct TTLLatch;\n")];
    function_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn break_lock() {}\n")];
    method_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nimpl A { fn unlock(self) {} }\n")];
    field_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nstruct B { first_epoch: u64 }\n")];
    variant_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nenum B { LockInfo }\n")];
    constant_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nconst HIGH_WATER_MARK: u64 = 1;\n")];
    module_with_another_word_is_found: "word" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nmod tickets;\n")];
    core_that_knows_a_backend_is_found: "dependency" at "crates/fencepost-core/Cargo.toml:2" in
        [("crates/fencepost-core/Cargo.toml", "[dependencies]\nfencepost-policy.workspace = true\n")];
    policy_that_knows_a_backend_is_found: "dependency" at "crates/fencepost-policy/Cargo.toml:4" in
        [("crates/fencepost-policy/Cargo.toml",
          "[dependencies]\nfencepost-core.workspace = true\n\nfencepost = { workspace = true }\n")];
    advisor_that_knows_the_policy_is_found: "dependency" at "crates/fencepost-advisor/Cargo.toml:2" in
        [("crates/fencepost-advisor/Cargo.toml", "[dependencies]\nfencepost-policy.workspace = true\n")];
    backend_that_knows_a_backend_is_found: "dependency" at "crates/fencepost-etcd/Cargo.toml:1" in
        [("crates/fencepost-etcd/Cargo.toml", "[target.'cfg(unix)'.dependencies.fencepost-file]\npath = \"x\"\n"),
         SUITE, README, PROFILE];
    library_that_needs_the_testkit_is_found: "dependency" at "crates/fencepost/Cargo.toml:2" in
        [("crates/fencepost/Cargo.toml", "[build-dependencies]\nfencepost-testkit.workspace = true\n")];
    renamed_dependency_is_found: "dependency" at "crates/fencepost-advisor/Cargo.toml:2" in
        [("crates/fencepost-advisor/Cargo.toml", "[dependencies]\nlab = { package = \"fencepost-lab\" }\n")];
    dependency_that_the_workspace_renamed_is_found: "dependency" at "crates/fencepost-advisor/Cargo.toml:2" in
        [("Cargo.toml", "[workspace.dependencies]\nlab = { package = \"fencepost-lab\" }\n"),
         ("crates/fencepost-advisor/Cargo.toml", "[dependencies]\nlab.workspace = true\n")];
    broken_manifest_is_found: "dependency" at "crates/a/Cargo.toml:1" in
        [("crates/a/Cargo.toml", "[dependencies\n")];
    backend_without_a_readme_is_found: "backend" at "crates/fencepost-etcd/README.md:1" in
        [MANIFEST, SUITE, PROFILE];
    readme_with_headings_in_another_order_is_found: "backend" at "crates/fencepost-etcd/README.md:1" in
        [MANIFEST, SUITE, PROFILE, (README.0, &README.1.replace("How it works", "How it works not"))];
    backend_without_a_profile_is_found: "backend" at "crates/fencepost-etcd/Cargo.toml:1" in
        [MANIFEST, SUITE, README];
    backend_without_the_conformance_suite_is_found: "backend" at "crates/fencepost-etcd/Cargo.toml:1" in
        [MANIFEST, README, PROFILE];
    path_of_a_machine_is_found: "machine" at "docs/b.md:2" in
        [("docs/b.md", concat!("# B\nsee `/ho", "me/b/notes`\n"))];
    package_registry_is_found: "machine" at "docs/b.md:1" in
        [("docs/b.md", concat!("https://static.crates", ".io/b\n"))];
    long_readme_is_found: "page" at "README.md:151" in
        [("README.md", &"\n".repeat(151))];
    long_decision_is_found: "page" at "docs/decisions/0001-two-traits.md:61" in
        [("docs/decisions/0001-two-traits.md", &"\n".repeat(61))];
    decision_without_a_number_is_found: "page" at "docs/decisions/two-traits.md:1" in
        [("docs/decisions/two-traits.md", "")];
    decision_without_a_name_is_found: "page" at "docs/decisions/0001.md:1" in
        [("docs/decisions/0001.md", "")];
    package_without_a_description_is_found: "package" at "crates/a/Cargo.toml:1" in
        [("crates/a/Cargo.toml", &PACKAGE.replace("description = \"a\"", ""))];
    package_with_too_many_keywords_is_found: "package" at "crates/a/Cargo.toml:1" in
        [("crates/a/Cargo.toml", &PACKAGE.replace("[\"k\"]", "[\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"]"))];
    crate_that_is_not_published_is_found: "package" at "crates/a/Cargo.toml:1" in
        [("crates/a/Cargo.toml", &format!("{PACKAGE}publish = false\n"))];
    tool_that_is_published_is_found: "package" at "bench/Cargo.toml:1" in
        [("bench/Cargo.toml", "[package]\nname = \"bench\"\n")];
    crate_without_a_version_is_found: "package" at "Cargo.toml:1" in
        [("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\na = { path = \"crates/a\" }\n")];
    file_outside_the_package_is_found: "package" at "crates/a/src/b/c.rs:2" in
        [("crates/a/src/b/c.rs", "//! C.\nconst C: &str = include_str!(\"../../../../docs/c.md\");\n")];
    letter_that_no_terminal_needs_to_have_is_found: "ascii" at "crates/a/src/b.rs:2" in
        [("crates/a/src/b.rs", "//! B.\nfn b() -> String { format!(\"and more …\") }\n")];
    letter_in_a_help_text_is_found: "ascii" at "crates/a/src/args/b.rs:2" in
        [("crates/a/src/args/b.rs", "//! B.\n/// Look …\nstruct B;\n")];
    invariant_without_a_guard_is_found: "invariant" at "ARCHITECTURE.md:2" in
        [("ARCHITECTURE.md", "# B\n- Invariant: a `Lease` ends once.\n- `unsafe_code`\n"), LINTS];
    invariant_whose_test_is_gone_is_found: "invariant" at "ARCHITECTURE.md:1" in
        [("ARCHITECTURE.md", "Invariant: it ends once (`core::keeper::lease_ends_once`, `unsafe_code`).\n"), LINTS];
    invariant_that_names_no_more_than_its_subject_is_found: "invariant" at "ARCHITECTURE.md:1" in
        [("ARCHITECTURE.md", "Invariant: `lease_ends` once.\n"),
         ("crates/a/src/b.rs", "//! B.\nfn lease_ends() {}\n")];
}

near_misses! {
    crate_root_may_have_its_readme_for_a_head:
        [("crates/a/src/lib.rs", "#![doc = include_str!(\"../README.md\")]\n")];
    crate_root_may_have_a_long_head:
        [("crates/a/src/lib.rs", &"//! A.\n".repeat(30))];
    tests_do_not_count_for_the_length_of_a_file:
        [("crates/a/src/b.rs", &format!("//! B.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(600))),
         ("crates/a/tests/b.rs", &format!("//! B.\n{}", "\n".repeat(600)))];
    attributes_do_not_count_for_the_length_of_a_function:
        [("crates/a/src/b.rs", &format!("//! B.\n{}fn b() {{\n{}}}\n", "/// B.\n".repeat(9), "\n".repeat(68)))];
    generated_code_has_its_own_shape:
        [("crates/a/src/generated/b.rs",
          &format!("#![allow(dead_code)]\nstruct Epoch;\nfn get_b() {{\n{}}}\n", "\n".repeat(600)))];
    lint_may_be_expected:
        [("crates/a/src/b.rs", "//! B.\n#[expect(dead_code, reason = \"b\")]\nfn b() { allow(1); }\n")];
    strings_and_longer_words_are_no_remarks:
        [("crates/a/src/b.rs", "//! B.\nconst B: &str = \"TODO\"; // XXXX, a todo list\nfn b() { todo(); }\n"),
         ("docs/b.md", "No TODO.\n"), ("Cargo.lock", "")];
    tests_may_unwrap:
        [("crates/a/src/b.rs", "//! B.\n#[cfg(test)]\nmod tests { fn b() { a().unwrap(); } }\n"),
         ("crates/a/src/c.rs", "//! C.\n/// `a().unwrap()`\n#[tokio::test]\nasync fn c() { a().unwrap(); }\n"),
         ("crates/a/src/d.rs", "//! D.\nimpl D {\n#[cfg(test)]\nfn d() { a().unwrap(); }\n}\n"),
         ("crates/a/tests/b.rs", "//! B.\nfn b() { a().unwrap(); }\n")];
    programs_and_tests_may_print:
        [("crates/fencepost-cli/src/b.rs", "//! B.\nfn b() { println!(\"b\") }\n"),
         ("crates/a/src/b.rs", "//! B.\n//! println!(\"b\")\n#[test]\nfn b() { println!(\"b\") }\n")];
    clock_may_read_the_clock:
        [("crates/fencepost-core/src/clock.rs", "//! B.\nfn b() { getrandom(Instant::now()); }\n"),
         ("crates/a/src/b.rs", "//! B.\n// not Instant::now()\nfn b(clock: Clock) { clock.now(); clock.sleep(c); }\n")];
    names_of_others_may_be_used:
        [("crates/a/src/b.rs",
          "//! B.\nuse std::sync::{Mutex, MutexGuard};\nfn b(b: &Mutex<u8>) { b.lock(); ErrorKind::TimedOut }\n")];
    names_of_a_trait_are_not_the_implementors_choice:
        [("crates/a/src/b.rs", "//! B.\nimpl lock_api::RawMutex for B { fn unlock(&self) {} fn get_b(&self) {} }\n")];
    words_inside_other_words_are_other_words:
        [("crates/a/src/b.rs", "//! B.\nfn stealthy_requests_blocking() {}\nenum Guardian { Timeout }\n")];
    lock_that_is_named_and_a_block_are_two_words:
        [("crates/a/src/b.rs", "//! B.\nfn block_information() {}\nfn info_of_lock() {}\n")];
    tests_and_programs_may_need_the_tools_of_tests:
        [("crates/fencepost-file/Cargo.toml",
          "[dependencies]\nfencepost-core.workspace = true\n[dev-dependencies]\nfencepost-testkit.workspace = true\n"),
         ("crates/fencepost-file/README.md", README.1), ("crates/fencepost-file/src/lib.rs", PROFILE.1),
         ("crates/fencepost-file/tests/conformance.rs", SUITE.1),
         ("crates/fencepost-lab/Cargo.toml", "[dependencies]\nfencepost-testkit.workspace = true\n"),
         ("crates/fencepost-cli/Cargo.toml", "[dependencies]\nfencepost-lab.workspace = true\n")];
    whole_backend_is_one:
        [MANIFEST, SUITE, README, PROFILE];
    fence_has_no_profile:
        [("crates/fencepost-sqlite/Cargo.toml", ""), ("crates/fencepost-sqlite/README.md", README.1),
         ("crates/fencepost-sqlite/tests/conformance.rs", SUITE.1)];
    lock_file_and_deny_may_name_registries:
        [("Cargo.lock", concat!("crates", ".io")), ("deny.toml", concat!("crates", ".io"))];
    folders_of_other_names_are_no_machine:
        [("docs/b.md", concat!("a/wo", "rk/b ~/wo", "rk/b /var/lib ${HOME}/ro", "ot/b\n"))];
    numbered_decision_is_named_well:
        [("docs/decisions/0001-two-traits.md", &"\n".repeat(60)), ("README.md", &"\n".repeat(150))];
    whole_package_is_one:
        [("crates/a/Cargo.toml", PACKAGE), ("bench/Cargo.toml", "[package]\npublish = false\n"),
         ("Cargo.toml", "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\nb = { path = \"b\", version = \"0.1.0\" }\n")];
    file_of_the_package_and_that_of_a_test_may_be_read:
        [("crates/a/src/b/c.rs",
          "//! C.\nconst C: &str = include_str!(\"../../c.md\");\n#[cfg(test)]\nmod tests {\nconst D: &str = include_str!(\"../../../d.md\");\n}\n")];
    letters_of_comments_tests_and_pages_are_anybodys:
        [("crates/a/src/b.rs", "//! B …\n/// B …\nfn b() {}\n#[cfg(test)]\nmod tests {\nconst B: &str = \"…\";\n}\n"),
         ("crates/a/src/page/c.rs", "//! C.\nconst C: &str = \"…\";\n"), ("xtask/src/d.rs", "//! D.\nconst D: &str = \"…\";\n")];
    invariant_with_a_guard_is_guarded:
        [("ARCHITECTURE.md",
          "Invariant: no `counted_from`\nis invented\n(`a::lease_ends_once`).\n\
           - Invariant: `unsafe_code` is denied.\n\n\
           Invariant: one clock (`tidy::clock`).\n"), LINTS,
         ("crates/a/src/b.rs", "//! B.\nstruct B { counted_from: u8 }\n#[test]\nfn lease_ends_once() {}\n")];
}

const PACKAGE: &str = r#"[package]
authors.workspace = true
categories = ["c"]
description = "a"
edition.workspace = true
exclude.workspace = true
keywords = ["k"]
license.workspace = true
readme = "README.md"
rust-version.workspace = true
version.workspace = true
"#;
const MANIFEST: (&str, &str) = ("crates/fencepost-etcd/Cargo.toml", "[dependencies]\n");
const SUITE: (&str, &str) = ("crates/fencepost-etcd/tests/conformance.rs", "//! The suite.\n");
const PROFILE: (&str, &str) =
    ("crates/fencepost-etcd/src/lib.rs", "//! B.\npub const PROFILE: Profile = B;\n");
const README: (&str, &str) = (
    "crates/fencepost-etcd/README.md",
    "# B\n## What it promises\n## How it works\n## What it does not promise\n## Options\n## Operating notes\n",
);
const LINTS: (&str, &str) = ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n");
