//! What holds for every combination of answers. There are 972, and each is looked at.

use fencepost_advisor::{
    Advice, Answers, Held, Overlap, Pattern, Question, Reach, Shortfall, advise, shortfalls, weaknesses,
};
use fencepost_core::{BackendUrl, Profile, Scope, Timing};

/// The profiles of a build that has every pattern.
fn profiles() -> Vec<Profile> {
    Pattern::ALL.map(Pattern::assumed).to_vec()
}

fn advice(answers: Answers) -> Advice {
    advise(&answers, &profiles())
}

/// Every combination, with the questions that were not answered.
fn combinations() -> Vec<Answers> {
    let mut all = vec![Answers::default()];
    for question in Question::ALL {
        let answers = question.choices().iter().map(|choice| choice.answer).chain(["unknown"]);
        let answers: Vec<&str> = answers.collect();
        let with = |known: &Answers, answer: &str| {
            let mut next = *known;
            next.answer(question, answer);
            next
        };
        all = all.iter().flat_map(|known| answers.iter().map(|answer| with(known, answer))).collect();
    }
    all
}

/// Those in which every question was answered.
fn complete() -> Vec<Answers> {
    combinations().into_iter().filter(|answers| answers.unanswered().next().is_none()).collect()
}

/// From the weakest lock to the strongest, where workers run on several hosts; the file lock comes first, for the one.
fn strength(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Zookeeper => strength(Pattern::Etcd),
        other => Pattern::ALL.iter().position(|one| *one == other).expect("all are listed"),
    }
}

#[test]
fn every_combination_is_there() {
    assert_eq!((combinations().len(), complete().len()), (972, 96));
}

#[test]
fn corrupting_overlap_with_pauses_and_a_sink_that_checks_is_always_fenced() {
    let mut seen = 0;
    for answers in combinations() {
        let worse = answers.assuming_the_worse();
        let demanded = worse.on_overlap == Some(Overlap::Corrupts)
            && worse.can_pause == Some(true)
            && worse.sink_checks == Some(true);
        assert_eq!(advice(answers).fence, demanded, "{answers:?}");
        seen += usize::from(demanded);
    }
    assert!(seen > 0);
}

/// A backend of this kind, as it is without options.
fn url(pattern: Pattern) -> BackendUrl {
    format!("{}:x", pattern.name()).parse().expect("it is a URL")
}

#[test]
fn corrupting_overlap_is_never_put_on_one_redis() {
    for answers in combinations() {
        let advice = advice(answers);
        if answers.assuming_the_worse().on_overlap == Some(Overlap::Corrupts) {
            assert!(!matches!(advice.pattern, Pattern::Redis | Pattern::Redlock), "{answers:?}");
        }
        for fenced in [true, false] {
            let url = url(Pattern::Redis);
            let held = Held { backend: Some(&url), fenced };
            let refused = !weaknesses(&answers, held).is_empty();
            assert_eq!(refused, answers.on_overlap == Some(Overlap::Corrupts), "{answers:?} {fenced}");
        }
    }
}

#[test]
fn single_host_gets_a_file() {
    for answers in combinations() {
        let is_file = advice(answers).pattern == Pattern::File;
        assert_eq!(is_file, answers.hosts == Some(Reach::One), "{answers:?}");
    }
}

#[test]
fn several_databases_and_a_corrupting_overlap_get_a_cluster() {
    let several = |answers: &Answers| {
        answers.on_overlap == Some(Overlap::Corrupts)
            && answers.databases == Some(Reach::Many)
            && answers.hosts == Some(Reach::Many)
    };
    for answers in combinations().into_iter().filter(several) {
        assert!(matches!(advice(answers).pattern, Pattern::Etcd | Pattern::Zookeeper), "{answers:?}");
    }
}

#[test]
fn postgres_is_taken_where_it_is_and_never_set_up() {
    for answers in complete() {
        let advice = advice(answers);
        let one = answers.databases == Some(Reach::One) && answers.hosts == Some(Reach::Many);
        if answers.postgres == Some(false) {
            assert_ne!(advice.pattern, Pattern::Postgres, "{answers:?}");
        } else if one {
            assert_eq!(advice.pattern, Pattern::Postgres, "{answers:?}");
        }
    }
}

/// A cluster only where an overlap corrupts, and never more servers than some lock that is strong enough.
#[test]
fn nothing_is_stronger_than_needed() {
    for answers in combinations() {
        let (advice, worse) = (advice(answers), answers.assuming_the_worse());
        if matches!(advice.pattern, Pattern::Etcd | Pattern::Zookeeper) {
            assert_eq!(worse.on_overlap, Some(Overlap::Corrupts), "{answers:?}");
        }
        for other in Pattern::ALL {
            let is_there = other != Pattern::Postgres || worse.postgres == Some(true);
            let is_lighter = other.servers(&worse).0 < advice.cost.servers;
            let is_enough = shortfalls(&worse, &other.assumed(), advice.fence).is_empty();
            assert!(!(is_there && is_lighter && is_enough), "{answers:?}: {other:?} would do");
        }
        let unfenced = shortfalls(&worse, &advice.pattern.assumed(), false);
        assert_eq!(advice.fence, unfenced.contains(&Shortfall::Unfenced), "{answers:?}");
    }
}

/// Whether there is a Postgres is no matter of better or worse, but of what is there.
#[test]
fn worse_answer_never_gives_a_weaker_lock() {
    for better in complete() {
        for question in Question::ALL.into_iter().filter(|question| *question != Question::Postgres) {
            let mut worse = better;
            let bad = Answers::default().assuming_the_worse().to(question).expect("it is an answer");
            worse.answer(question, bad);
            let (of_better, of_worse) = (advice(better), advice(worse));
            assert!(strength(of_worse.pattern) >= strength(of_better.pattern), "{better:?} {worse:?}");
            // Without a fence only where nothing can check any more.
            assert!(of_worse.fence || !of_better.fence || question == Question::SinkChecks, "{better:?}");
            // The lock for the worse answers does for the better ones as well.
            let enough = shortfalls(&better, &of_worse.pattern.assumed(), of_worse.fence || of_better.fence);
            assert!(enough.is_empty(), "{better:?} {worse:?} {enough:?}");
        }
    }
}

#[test]
fn unanswered_question_gives_the_lock_of_the_worse_answer_and_says_so() {
    for answers in combinations() {
        let (given, assumed) = (advice(answers), advice(answers.assuming_the_worse()));
        assert_eq!((given.pattern, given.fence), (assumed.pattern, assumed.fence), "{answers:?}");
        for question in answers.unanswered() {
            let said = given.warnings.iter().any(|warning| warning.contains(question.flag()));
            let reason = &given.reasons.iter().find(|(of, _)| *of == question).expect("each has one").1;
            assert!(said && reason.starts_with("not answered"), "{answers:?} {question:?}");
        }
    }
}

#[test]
fn rule_of_the_advice_is_never_weaker_than_its_own_answers() {
    for answers in combinations() {
        let advice = advice(answers);
        let url = url(advice.pattern);
        let held = Held { backend: Some(&url), fenced: advice.fence };
        assert_eq!(weaknesses(&answers, held), [], "{answers:?}");
    }
}

/// By what a profile says alone, without the judgement that is tested.
fn is_weaker(answers: Answers, kind: Pattern, fenced: bool, advice: &Advice) -> bool {
    let (profile, advised) = (kind.assumed(), advice.pattern.assumed());
    let reaches_less = answers.hosts == Some(Reach::Many) && profile.scope <= Scope::Host;
    let is_alone = advised.scope == Scope::Cluster
        && answers.databases == Some(Reach::Many)
        && profile.scope == Scope::Server;
    let goes_by_clocks = match profile.timing {
        Timing::WallClock => true,
        Timing::WallClocks => !fenced,
        _ => false,
    };
    reaches_less || is_alone || goes_by_clocks || (advice.fence && !fenced)
}

#[test]
fn rule_weaker_than_the_advice_is_refused_where_an_overlap_corrupts() {
    let mut refused = 0;
    let corrupts = |answers: &Answers| answers.on_overlap == Some(Overlap::Corrupts);
    for answers in complete().into_iter().filter(corrupts) {
        let advice = advice(answers);
        for pattern in Pattern::ALL {
            for fenced in [true, false] {
                let weaker = is_weaker(answers, pattern, fenced, &advice);
                let url = url(pattern);
                let found = weaknesses(&answers, Held { backend: Some(&url), fenced });
                assert_eq!(!found.is_empty(), weaker, "{answers:?} {pattern:?} {fenced} {found:?}");
                refused += usize::from(weaker);
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn nobody_is_told_that_a_lock_alone_is_safe_where_it_is_not() {
    for answers in combinations() {
        let (advice, worse) = (advice(answers), answers.assuming_the_worse());
        let exposed = worse.on_overlap == Some(Overlap::Corrupts)
            && worse.can_pause == Some(true)
            && worse.sink_checks == Some(false);
        let said = advice.warnings.iter().any(|warning| warning.starts_with("No lock makes this safe"));
        assert_eq!(said, exposed && advice.pattern != Pattern::File, "{answers:?}");
    }
}

#[test]
fn reasons_risks_and_alternatives_are_never_missing() {
    for answers in combinations() {
        let advice = advice(answers);
        assert_eq!((advice.reasons.len(), advice.risks.len()), (6, 7));
        let is_final = matches!(advice.pattern, Pattern::Etcd | Pattern::Zookeeper) && advice.fence;
        assert!(advice.alternatives.len() >= if is_final { 1 } else { 2 } || advice.pattern == Pattern::File);
        for risk in &advice.risks {
            assert_eq!(risk.two_may_overlap, risk.older_write.is_some());
        }
    }
}

#[test]
fn pattern_that_the_build_lacks_is_still_advised_and_said_to_be_missing() {
    for answers in combinations() {
        let without = advise(&answers, &[]);
        let with = advice(answers);
        assert_eq!((without.pattern, without.fence), (with.pattern, with.fence));
        let says_so = |advice: &Advice| advice.warnings.iter().any(|warning| warning.contains("This build"));
        assert!(says_so(&without) && !says_so(&with), "{answers:?}");
    }
}

#[test]
fn of_equals_the_one_that_the_build_has_is_taken() {
    let worst = Answers::default();
    let with_zookeeper = [Pattern::File.assumed(), Pattern::Zookeeper.assumed()];
    assert_eq!(advise(&worst, &with_zookeeper).pattern, Pattern::Zookeeper);
    assert_eq!(advise(&worst, &profiles()).pattern, Pattern::Etcd);
}

#[test]
fn texts_fit_into_forty_columns_and_eighty() {
    for answers in combinations() {
        for width in [40, 80] {
            let text = advice(answers).text(width);
            let long = text.lines().find(|line| line.chars().count() > width);
            assert_eq!(long, None, "{answers:?}");
        }
    }
}

#[test]
fn answers_are_read_as_they_are_written() {
    for answers in combinations() {
        let mut read = Answers::default();
        for question in Question::ALL {
            read.answer(question, answers.to(question).unwrap_or("unknown"));
        }
        assert_eq!(read, answers);
    }
}
