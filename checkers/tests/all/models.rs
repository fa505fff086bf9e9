//! Each model of `linearizable` on a history that it must accept and one that it must convict, with
//! what is said of the latter; and on operations that make no sense.

use checkers::linearizable::models::MODELS;
use checkers::{Budget, Checked, Reason, Verdict, find};

use crate::script;

pub fn check(model: &str, text: &str) -> Checked {
    let text = format!("param model \"{model}\"\n{text}");
    let checker = find("linearizable").expect("the checker");
    checkers::run(checker, &script::history("", &text), &Budget::unlimited())
}

/// A model, a good history, what is replaced in it to make it bad, and what is said then.
struct Twin {
    model: &'static str,
    good: &'static str,
    replace: (&'static str, &'static str),
    says: &'static str,
}

const TWINS: &[Twin] = &[
    Twin {
        model: "register",
        good: r#"
            0-1 A write x 1 -> 1
            2-9 B write x 2 -> 2
            3-4 C read x null -> 2
            10-11 C cas x [2,3] -> [2,3]"#,
        replace: ("cas x [2,3] -> [2,3]", "read x null -> 1"),
        says: "key x: read by C began after write 2 was acknowledged to B, and returned 1",
    },
    // What cas made of each other is one block.
    Twin {
        model: "register",
        good: r#"
            0-1 A write x 1 -> 1
            2-9 B cas x [1,2] -> [1,2]
            2-9 C cas x [2,3] -> [2,3]"#,
        replace: ("cas x [2,3] -> [2,3]", "cas x [1,3] -> [1,3]"),
        says: "key x: cas of [1,2] by B and cas of [1,3] by C both succeeded on a value that was there once",
    },
    Twin {
        model: "register",
        good: r#"
            0-1 A write x 1 -> 1
            2-9 B cas x [1,2] -> info timeout
            4-5 C cas x [2,3] -> [2,3]
            6-9 D read x null -> 3"#,
        replace: ("read x null -> 3", "read x null -> 2"),
        says: "key x: D read -> 2 cannot be explained: no order of these 2 operations has all their answers",
    },
    Twin {
        model: "register",
        good: r#"
            0-1 A write x 1 -> 1
            2-3 B write x 2 -> 2
            4-5 C cas x [2,3] -> [2,3]
            6-7 D read x null -> 3"#,
        replace: ("cas x [2,3] -> [2,3]", "cas x [1,3] -> [1,3]"),
        says: "key x: cas of [1,3] by C began after write 2 was acknowledged to B, and succeeded",
    },
    Twin {
        model: "register",
        good: r#"
            0-9 A cas x [null,1] -> [null,1]
            0-9 B cas x [1,2] -> [1,2]"#,
        replace: ("cas x [null,1] -> [null,1]", "cas x [2,1] -> [2,1]"),
        says: "key x: nothing explains B cas [1,2]",
    },
    Twin {
        model: "multi-register",
        good: r#"
            0-9 A txn - [["w",1,5],["w",2,5]] -> [["w",1,5],["w",2,5]]
            2-3 B txn - [["r",1,null],["r",2,null]] -> [["r",1,5],["r",2,5]]"#,
        replace: ("[[\"r\",1,5]", "[[\"r\",1,null]"),
        says: "the object: nothing explains \
               B txn [[\"r\",1,null],[\"r\",2,null]] -> [[\"r\",1,null],[\"r\",2,5]]",
    },
    Twin {
        model: "versioned-register",
        good: r#"
            0-9 A write k 5 -> {"revision":3}
            0-9 B write k 6 -> {"revision":2}
            10-11 C read k null -> {"value":5,"revision":3}"#,
        replace: (
            "10-11 C read k null -> {\"value\":5,\"revision\":3}",
            "10-11 C read k null -> {\"value\":6,\"revision\":2}",
        ),
        says: "key k: A write 5 -> {\"revision\":3} was over before C read -> \
               {\"revision\":2,\"value\":6} began, which it must follow",
    },
    // Equal strings: which of them is where is told by time.
    Twin {
        model: "kv",
        good: r#"
            0-5 A append k "y" -> "y"
            6-7 C get k null -> "y"
            8-9 B append k "y" -> "y"
            10-11 C get k null -> "yy""#,
        replace: ("6-7 C get k null -> \"y\"", "6-7 C get k null -> \"yy\""),
        says: "key k: nothing explains C get -> yy",
    },
    Twin {
        model: "kv",
        good: r#"
            0-5 A put k "x" -> "x"
            6-9 B append k "y" -> "y"
            6-9 C append k "z" -> "z"
            10-11 D get k null -> "xzy""#,
        replace: ("6-9 C", "10-11 C"),
        says: "key k: B append y was over before C append z began, which it must follow",
    },
    Twin {
        model: "mutex",
        good: r#"
            0-1 A acquire L null -> null
            2-9 B release L null -> null
            3-4 C acquire L null -> null"#,
        replace: ("2-9 B", "5-9 B"),
        says: "key L: C acquire was granted although A acquire had been and nothing was given back since",
    },
    Twin {
        model: "owner-aware-mutex",
        good: r#"
            0-1 A acquire L null -> null
            2-9 A release L null -> null
            3-4 C acquire L null -> null"#,
        replace: ("2-9 A", "5-9 A"),
        says: "key L: C acquire was granted while A acquire held: A release had not been asked for",
    },
    Twin {
        model: "reentrant-mutex",
        good: r#"
            0-1 A acquire L null -> null
            2-3 A acquire L null -> null
            4-5 A release L null -> null
            6-7 A release L null -> null
            8-9 B acquire L null -> null"#,
        replace: ("6-7 A release L null -> null", ""),
        says: "key L: B acquire was granted while A acquire held, which was never given back",
    },
    Twin {
        model: "fenced-mutex",
        good: r#"
            0-1 A acquire L null -> {"token":7}
            2-3 A release L null -> null
            4-5 B acquire L null -> {"token":9}"#,
        replace: (":9", ":7"),
        says: "key L: B acquire -> {\"token\":7} got a token that is not larger than that of \
               A acquire -> {\"token\":7}",
    },
    Twin {
        model: "semaphore",
        good: r#"
            param permits 2
            0-1 A acquire S 1 -> null
            2-3 B acquire S 1 -> null
            4-9 A release S 1 -> null
            5-6 C acquire S 1 -> null"#,
        replace: ("4-9 A", "7-9 A"),
        says: "key S: C acquire 1 -> null was granted although A acquire 1 -> null and \
               B acquire 1 -> null had been and nothing was given back since",
    },
    Twin {
        model: "fifo-queue",
        good: r#"
            0-9 A enqueue q 1 -> null
            2-5 B enqueue q 2 -> null
            10-11 C dequeue q null -> 2
            12-13 C dequeue q null -> 1"#,
        replace: ("0-9", "0-1"),
        says: "key q: C dequeue -> 2 came out before C dequeue -> 1 was asked for, although \
               A enqueue 1 -> null was over before B enqueue 2 -> null began",
    },
    Twin {
        model: "unordered-queue",
        good: r#"
            0-1 A enqueue q 1 -> null
            2-3 A enqueue q 2 -> null
            4-5 B dequeue q null -> 2
            6-9 C dequeue q null -> 1
            7-8 B dequeue q null -> null"#,
        replace: ("6-9 C", "9-10 C"),
        says: "key q: B dequeue -> null found nothing, although something was there all the time",
    },
    Twin {
        model: "set",
        good: r#"
            0-1 A add s 1 -> null
            2-9 B add s 2 -> null
            3-4 C read s null -> [2,1]
            5-6 D read s null -> [1,2]"#,
        replace: ("[1,2]", "[1]"),
        says: "key s: C read -> [2,1] was over before D read -> [1] began, which it must follow",
    },
    Twin {
        model: "counter",
        good: r#"
            0-9 A add n 1 -> null
            1-2 B read n null -> 0
            3-4 C read n null -> 1"#,
        replace: ("3-4 C read n null -> 1", "3-4 C read n null -> 2"),
        says: "key n: C read -> 2 is not what can have been added by then",
    },
    Twin {
        model: "append-log",
        good: r#"
            0-1 A append l 1 -> null
            2-9 B append l 2 -> null
            3-4 C read l null -> [1]
            5-6 D read l null -> [1,2]"#,
        replace: ("[1,2]", "[2,1]"),
        says: "key l: C read -> [1] returned what is no beginning of D read -> [2,1]",
    },
];

#[test]
fn every_model_accepts_the_good_one_and_convicts_the_bad_one() {
    for twin in TWINS {
        let found = check(twin.model, twin.good);
        assert_eq!(found.verdict, Verdict::Valid, "{}", twin.model);
        let ops = found
            .counts
            .iter()
            .filter(|(name, _)| name.starts_with("ops:"));
        assert!(
            ops.map(|(_, count)| count).sum::<u64>() > 0,
            "{}",
            twin.model
        );
        let (from, to) = twin.replace;
        assert!(twin.good.contains(from), "{}", twin.model);
        let found = check(twin.model, &twin.good.replace(from, to));
        assert_eq!(found.verdict, Verdict::Invalid, "{}", twin.model);
        let told = found.counterexample.expect("a counterexample");
        assert_eq!(told.summary, twin.says, "{}", twin.model);
    }
    for model in MODELS {
        let told = TWINS.iter().any(|twin| twin.model == model.name);
        assert!(told, "{} has no twins", model.name);
    }
}

/// A model is chosen by the workload if its name is that of a model.
#[test]
fn the_model_is_that_of_the_workload_or_a_register() {
    let checker = find("linearizable").expect("the checker");
    let text = "0-1 A enqueue q 1 -> null\n2-3 A dequeue q null -> 2";
    let run = |history| checkers::run(checker, &history, &Budget::unlimited());
    let found = run(script::history("fifo-queue", text));
    assert_eq!(found.verdict, Verdict::Invalid);
    let found = run(script::history(
        "fifo-queue",
        &format!("param model \"register\"\n{text}"),
    ));
    assert!(matches!(
        found.verdict,
        Verdict::Unknown(Reason::NotApplicable(_))
    ));
    let found = run(script::history(
        "",
        &format!("param model \"fifo-quue\"\n{text}"),
    ));
    let Verdict::Unknown(Reason::Parameter(refused)) = found.verdict else {
        panic!("expected a refusal, got {:?}", found.verdict);
    };
    assert!(refused.contains("did you mean `fifo-queue`?"), "{refused}");
}

#[test]
fn what_makes_no_sense_is_said_with_its_event() {
    for (model, line, says) in [
        (
            "mutex",
            "2-3 B lock L null -> null",
            "`lock` of event 2: the model has no such function",
        ),
        (
            "semaphore",
            "2-3 B acquire L \"x\" -> null",
            "`acquire` of event 2: its argument is no count",
        ),
        (
            "semaphore",
            "2-3 B acquire L -1 -> null",
            "`acquire` of event 2: its argument is no count",
        ),
        (
            "fenced-mutex",
            "2-3 B acquire L null -> \"x\"",
            "`acquire` of event 2: it was granted without",
        ),
        (
            "fifo-queue",
            "2-3 B enqueue L null -> null",
            "`enqueue` of event 2: it enqueues null",
        ),
        (
            "set",
            "2-3 B read L null -> 7",
            "`read` of event 2: its result is no list",
        ),
        (
            "set",
            "2-3 B contains L 1 -> 7",
            "`contains` of event 2: its result is neither",
        ),
        (
            "counter",
            "2-3 B add L \"x\" -> 7",
            "`add` of event 2: its argument is no integer",
        ),
        (
            "counter",
            "2-3 B read L null -> \"x\"",
            "`read` of event 2: its result is no integer",
        ),
        (
            "append-log",
            "2-3 B read L null -> {}",
            "`read` of event 2: its result is no list",
        ),
        (
            "versioned-register",
            "2-3 B write L 1 -> 1",
            "`write` of event 2: its result has no `revision`",
        ),
        (
            "versioned-register",
            "2-3 B cas L 1 -> {\"revision\":1}",
            "`cas` of event 2: its argument is neither",
        ),
        (
            "kv",
            "2-3 B put L null -> null",
            "`put` of event 2: it puts null",
        ),
        (
            "kv",
            "2-3 B append L 1 -> 1",
            "`append` of event 2: its argument is no string",
        ),
        (
            "kv",
            "2-3 B cas L [1] -> 1",
            "`cas` of event 2: its argument is no [old, new]",
        ),
        (
            "multi-register",
            "2-3 B txn L [[\"r\",1]] -> null",
            "`txn` of event 2: its value is no list",
        ),
        (
            "multi-register",
            "2-3 B txn L 3 -> 3",
            "`txn` of event 2: its value is no list",
        ),
    ] {
        let first = match model {
            "mutex" | "semaphore" => "acquire L null -> null",
            "fenced-mutex" => "acquire L null -> {\"token\":1}",
            "fifo-queue" => "enqueue L 1 -> null",
            "versioned-register" => "write L 1 -> {\"revision\":1}",
            "kv" => "put L 1 -> null",
            "multi-register" => "txn L [] -> []",
            "append-log" => "append L 1 -> null",
            _ => "add L 1 -> null",
        };
        let found = check(model, &format!("0-1 A {first}\n{line}"));
        let Verdict::Unknown(Reason::Coverage(text)) = found.verdict else {
            panic!("{line}: {:?}", found.verdict);
        };
        assert!(text.starts_with(says), "{text}");
    }
}
