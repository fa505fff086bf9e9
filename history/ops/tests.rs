//! What is read as an operation, and what is refused.

use crate::formats::{Options, read_bytes, read_bytes_with};
use crate::{Error, History, Outcome};
use serde_json::{Value, json};

fn read(text: &str) -> History {
    let read = read_bytes(text.as_bytes());
    read.unwrap_or_else(|error| panic!("{text}: {error}"))
        .history
}

/// The value of a single operation.
fn value(text: &str) -> Value {
    let history = read(&format!(
        "{{:type :invoke, :process 0, :f :x, :value {text}}}"
    ));
    history.event(0).value().to_json()
}

#[test]
fn values_of_edn_come_as_near_as_json_can() {
    for (text, expected) in [
        ("nil", json!(null)),
        ("true", json!(true)),
        ("-17", json!(-17)),
        ("+17", json!(17)),
        ("-0", json!(0)),
        ("9007199254740993", json!(9_007_199_254_740_993_i64)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("12N", json!(12)),
        (
            "123456789012345678901234567890N",
            json!("123456789012345678901234567890"),
        ),
        ("1.5", json!(1.5)),
        ("1.5e3", json!(1500.0)),
        ("1.5M", json!("1.5M")),
        ("2/4", json!("1/2")),
        ("-4/2", json!(-2)),
        (":a", json!("a")),
        (":jepsen.control/node", json!("jepsen.control/node")),
        ("foo", json!("foo")),
        ("-", json!("-")),
        (
            r#""a\n\"\\\u00e9\ud83d\ude00\101""#,
            json!("a\n\"\\\u{e9}\u{1f600}A"),
        ),
        (r"[\a \newline \u0041 \(]", json!(["a", "\n", "A", "("])),
        ("(1 [2, 3] #{4})", json!([1, [2, 3], [4]])),
        (
            "{0 10, :a {\"b\" nil}, [1 2] 3}",
            json!({"0": 10, "a": {"b": null}, "[1 2]": 3}),
        ),
        ("#inst \"2026-12-01\"", json!("2026-12-01")),
        ("#foo.Bar{:a 1}", json!({"a": 1})),
        ("^{:doc \"x\"} [1]", json!([1])),
        ("[1 #_2 #_#_ 3 [4] ; five\n 6]", json!([1, 6])),
        ("[1 ; two\r 3]", json!([1, 3])),
        ("[##NaN ##-Inf]", json!(["NaN", "-Inf"])),
        (
            "[[:r 1 [2 3]] [:append 1 4]]",
            json!([["r", 1, [2, 3]], ["append", 1, 4]]),
        ),
        (
            "[[:r 1 nil] [:pop 1 4]]",
            json!([["r", 1, null], ["pop", 1, 4]]),
        ),
        (
            "[[:append 1 2] [:r ] [:r 3] []]",
            json!([["append", 1, 2], ["r"], ["r", 3], []]),
        ),
        (
            "[[:r :x nil] [:w \"y\" [1 2]]]",
            json!([["r", "x", null], ["w", "y", [1, 2]]]),
        ),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn operations_stand_in_a_list_or_one_after_the_other() {
    let ops = "{:type :invoke :f :read :process 0} {:type :ok :f :read :process 0 :value 1}";
    let tagged = ops.replace('{', "#jepsen.history.Op{");
    for text in [
        ops.to_owned(),
        format!("; a comment\n[{ops}]\n"),
        format!("({ops}) ; the end"),
        format!("[{tagged}]"),
    ] {
        let history = read(&text);
        assert_eq!(
            history.ops().next().unwrap().outcome(),
            Outcome::Ok,
            "{text}"
        );
    }
    let json = r#"{"type":"invoke","f":"read","process":0}{"type":"ok","f":"read","process":0}"#;
    assert_eq!(read(json).len(), 2);
    assert_eq!(read(&format!("[{}]", json.replace("}{", "},\n{"))).len(), 2);
    assert_eq!(read("[]").len(), 0);
}

#[test]
fn what_is_left_out_is_taken_from_the_invocation() {
    let history = read(
        "{:type :invoke :f :cas :value [1 2] :process 0 :time 7}
         {:type :info :f :cas :value :timed-out :error [:net \"down\"] :process 0 :time 5}
         {:type :invoke :f :write :value 3 :process 0}
         {:type :ok :process 0}
         {:type :info :f :start :process :nemesis :value :majority}",
    );
    let events: Vec<_> = history.events().collect();
    assert_eq!(events[1].value().to_json(), json!([1, 2]));
    assert_eq!(events[1].error(), Some("[:net \"down\"]"));
    assert_eq!(events[2].process().to_string(), "0/2");
    assert_eq!(
        (events[3].f(), events[3].value().as_i64()),
        ("write", Some(3))
    );
    assert!(events[4].is_nemesis());
    assert!(
        events
            .iter()
            .map(|event| event.time())
            .eq([7, 8, 9, 10, 11])
    );
}

#[test]
fn an_operation_without_a_process_has_a_session_of_its_own() {
    let history = read(
        "{:type :invoke :value [[:append 1 1] [:r 2 nil]]}
         {:type :invoke :value [[:append 1 2] [:r 2 nil]]}
         {:type :ok :value [[:append 1 1] [:r 2 [5]]]}
         {:type :ok :value [[:append 1 2] [:r 2 [5]]]}",
    );
    let ends: Vec<_> = history
        .ops()
        .map(|op| op.completion.unwrap().index())
        .collect();
    assert_eq!(ends, [2, 3]);
    assert_eq!(history.process_count(), 2);
    assert_eq!(history.event(0).f(), "txn");
    assert_eq!(
        history.event(0).value().to_json(),
        json!([["append", 1, 1], ["r", 2, null]])
    );
    let twins = "{:type :invoke :f :read} {:type :invoke :f :read} {:type :ok :f :read :value 1}";
    assert!(refused(twins).contains("operation 2: a completion without a process"));
}

#[test]
fn pairs_of_jepsen_independent_are_told_apart() {
    let text = "{:type :invoke :f :read :value [:x nil] :process 0}
        {:type :ok :f :read :value [:x 3] :process 0}
        {:type :info :f :kill :value nil :process :nemesis}
        {:type :invoke :f :cas :value [:y [1 2]] :process 1}";
    let history = read(text);
    let event = history.event(3);
    assert_eq!(event.key().unwrap().as_str(), Some("y"));
    assert_eq!(event.value().to_json(), json!([1, 2]));
    assert_eq!(history.event(1).value().as_i64(), Some(3));
    let keyed = |independent| {
        let options = Options {
            independent: Some(independent),
            ..Options::default()
        };
        read_bytes_with(text.as_bytes(), &options)
    };
    assert!(keyed(false).unwrap().history.event(1).key().is_none());
    let other = text.replace("[:y [1 2]]", "7");
    assert!(read(&other).event(1).key().is_none());
}

fn refused(text: &str) -> String {
    match read_bytes(text.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(read) => panic!(
            "{text}: {:?}",
            read.history
                .events()
                .map(|event| event.to_event())
                .collect::<Vec<_>>()
        ),
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, says) in [
        (
            "{:type :okay}",
            "line 1, column 8: expected invoke, ok, fail or info, found `:okay}`",
        ),
        (
            "\n{:type :ok, :process 1.5}",
            "line 2, column 22: expected a process",
        ),
        (
            "{:type :invoke :f :read :process 0 :value [1 2}",
            "line 1, column 47: expected a value",
        ),
        (
            "{:type :invoke :f :read :process 0 :value \"a",
            "the text ends; expected the end of a string",
        ),
        ("[{:type :invoke :f :read :process 0}", "and in the end `]`"),
        (
            "{:type :invoke :f :read :process 0}\n{:type :invoke :f :read :process 0}",
            "line 2, column 1: operation 1: process 0 invokes `read`",
        ),
        (
            "{:type :ok :f :read :process 0}",
            "operation 0: process 0 completes `read`, which it has not invoked",
        ),
        ("{:f :read}", "without a type"),
        ("{:type :invoke :value 1}", "without a function"),
        (
            "[{:type :invoke :f :x}] 7",
            "expected an operation, which is a map, found `7`",
        ),
        (r#"[{"type":"invoke" "f":"x" "process" 0}]"#, "expected `:`"),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{text}: {error}");
    }
    let deep = format!("{{:type :invoke :f :x :value {}", "[".repeat(100_000));
    assert!(refused(&deep).contains("nested less than 128 deep"));
    let skipped = format!(
        "{{:other {}{} :type :invoke :f :x}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(read(&skipped).len(), 1);
    assert!(matches!(
        read_bytes(b"{:type :ok :f :\xff :process 1}"),
        Err(Error::Malformed { .. })
    ));
}

#[test]
fn a_text_of_many_pieces_is_read_as_one() {
    let mut text = "[".to_owned();
    for i in 0..20_000 {
        let list: Vec<String> = (0..i % 50).map(|at| (at + i).to_string()).collect();
        text += &format!("{{:type :invoke :f :txn :process {i} :value [[:r {i} nil]]}}\n");
        text += &format!(
            "{{:type :ok :f :txn :process {i} :value [[:r {i} [{}]]]}}",
            list.join(" ")
        );
    }
    text += "]";
    let history = read(&text);
    assert_eq!(history.len(), 40_000);
    for (i, op) in history.ops().enumerate() {
        let txn = op.output().unwrap().as_txn().unwrap();
        let crate::MopValue::List { start, len } = txn.mops[0].value() else {
            panic!("no list");
        };
        let list: Vec<u32> = txn
            .list(start, len)
            .iter()
            .filter_map(|word| word.as_small())
            .collect();
        let expected: Vec<u32> = (0..i % 50).map(|at| (at + i) as u32).collect();
        assert_eq!(list, expected);
        assert_eq!(op.input().to_json(), json!([["r", i, null]]));
    }
}
