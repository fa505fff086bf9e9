//! The vault: what it accepts, in which order, and that it remembers.

use crate::support::Vault;
use serde_json::json;

#[tokio::test]
async fn old_tokens_are_refused_also_after_a_crash() {
    let mut vault = Vault::start(&[]).await;
    let put = |v, token| json!({"key": "a", "v": v, "token": token});
    assert_eq!(
        vault.call("/put", put("one", 33)).await.ok(),
        &json!({"seq": 1})
    );
    assert_eq!(
        vault.call("/put", put("two", 33)).await.ok(),
        &json!({"seq": 2})
    );
    assert_eq!(
        vault
            .call("/fence", json!({"key": "a", "token": 34}))
            .await
            .ok()["seq"],
        3
    );
    for _ in 0..2 {
        let stale = vault.call("/put", put("three", 33)).await;
        assert_eq!((stale.status, stale.error()), (409, "stale-token"));
        assert_eq!(
            (&stale.body["definite"], &stale.body["max"]),
            (&json!(true), &json!(34))
        );
        vault.program.kill();
        vault.program.start();
        vault.ready().await;
    }
    let get = vault.call("/get", json!({"key": "a"})).await;
    assert_eq!(get.ok(), &json!({"v": "two", "token": 34, "seq": 3}));
    let stale = vault.call("/delete", json!({"key": "a", "token": 1})).await;
    assert_eq!(stale.error(), "stale-token");
    vault
        .call("/delete", json!({"key": "a", "token": 35}))
        .await
        .ok();
    let get = vault.call("/get", json!({"key": "a"})).await;
    assert_eq!(get.ok(), &json!({"v": null, "token": 35, "seq": 4}));
    // Another key has its own tokens, and the order goes over all keys.
    let other = json!({"key": "b", "v": 1, "token": 2});
    assert_eq!(vault.call("/put", other).await.ok()["seq"], 5);
}

#[tokio::test]
async fn without_fencing_everything_is_accepted() {
    let vault = Vault::start(&["--no-fencing"]).await;
    for (seq, token) in [(1, 34), (2, 33)] {
        let put = json!({"key": "a", "v": token, "token": token});
        assert_eq!(vault.call("/put", put).await.ok()["seq"], seq);
    }
    assert_eq!(vault.call("/get", json!({"key": "a"})).await.ok()["v"], 33);
}
