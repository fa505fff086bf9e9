//! Evidence about links: datagrams from agent to agent, and the network's own counters.
//!
//! Probes go along every link in question and along one clear link, the control: a cut is believed
//! only if the network says that it dropped the probes, none arrived, and the control's did. All
//! links are probed at once, so that this takes milliseconds. When the matrix changes meanwhile
//! (another fault struck or was healed) the result means nothing and the look is repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{Error, LinkPolicy};
use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::fault::{Evidence, Proof};
use crate::installed::{Installed, Merged};

type Link = (String, String);

/// How many datagrams go along each link.
const PROBES: u32 = 3;
/// How often a look is taken again because the matrix changed meanwhile.
const LOOKS_MAX: usize = 5;
/// How long datagrams are waited for.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long after sending it is first looked, and again.
const PERIOD: Duration = Duration::from_millis(3);

/// What was seen of one link.
#[derive(Debug, Clone)]
struct Seen {
    link: Link,
    sent: u32,
    received: u64,
    dropped: u64,
}

impl Seen {
    fn facts(&self) -> Value {
        let (link, sent) = (name(&self.link), self.sent);
        json!({ "link": link, "sent": sent, "received": self.received, "dropped": self.dropped })
    }
}

fn count(links: usize, what: &str) -> String {
    let plural = if links == 1 { "" } else { "s" };
    format!("{links} {what}{plural}")
}

fn name((from, to): &Link) -> String {
    format!("{from}>{to}")
}

/// What is to be proved about links.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claimed {
    /// Nothing passes.
    Cut,
    /// Frames are lost with this probability.
    Lossy(f64),
    /// Frames need at least about this long.
    Slow(Duration),
    /// Frames pass again. Links that another fault still harms are left out.
    Healed,
}

/// Looks for evidence for a claim about these links.
pub(crate) async fn prove(
    installed: &Installed,
    links: &BTreeSet<Link>,
    claimed: Claimed,
) -> Proof {
    let unseen = |error: Error| Evidence::says(format!("it could not be looked at: {error}"));
    for _ in 0..LOOKS_MAX {
        let merged = installed.merged().await.map_err(unseen)?;
        let proof = match claimed {
            Claimed::Cut => look_cut(installed, links, &merged).await,
            Claimed::Lossy(loss) => look_lossy(installed, links, &merged, loss).await,
            Claimed::Slow(least) => look_slow(installed, links, &merged, least).await,
            Claimed::Healed => look_healed(installed, links, &merged).await,
        };
        let proof = proof.map_err(unseen)?;
        if installed.merged().await.map_err(unseen)?.generation == merged.generation {
            return proof;
        }
    }
    Err(Evidence::says(
        "the links kept changing while they were looked at".to_owned(),
    ))
}

async fn look_cut(
    installed: &Installed,
    links: &BTreeSet<Link>,
    merged: &Merged,
) -> Result<Proof, Error> {
    let control = control(merged, links);
    let watched: Vec<Link> = links.iter().chain(&control).cloned().collect();
    let enough = |seen: &[Seen]| {
        let (cut, control) = seen.split_at(links.len());
        cut.iter().all(|seen| seen.dropped >= u64::from(PROBES))
            && control.iter().all(|seen| seen.received > 0)
    };
    let seen = send_and_count(installed, &watched, PROBES, enough).await?;
    let (cut, control) = seen.split_at(links.len());
    Ok(judge_cut(cut, control.first()))
}

fn judge_cut(cut: &[Seen], control: Option<&Seen>) -> Proof {
    let facts = json!({
        "links": cut.iter().map(Seen::facts).collect::<Vec<_>>(),
        "control": control.map(Seen::facts),
    });
    if let Some(seen) = cut.iter().find(|seen| seen.received > 0) {
        let (link, received, sent) = (name(&seen.link), seen.received, seen.sent);
        return Err(Evidence::new(
            format!("{received} of {sent} probes still passed {link}"),
            facts,
        ));
    }
    if let Some(seen) = cut.iter().find(|seen| seen.dropped < u64::from(seen.sent)) {
        let (link, dropped, sent) = (name(&seen.link), seen.dropped, seen.sent);
        let says = format!("the network dropped {dropped} frames on {link}, after {sent} probes");
        return Err(Evidence::new(says, facts));
    }
    let control = match control {
        None => "no link was left as a control".to_owned(),
        Some(seen) if seen.received > 0 => {
            format!(
                "{} of {} passed {}",
                seen.received,
                seen.sent,
                name(&seen.link)
            )
        }
        Some(seen) => {
            let link = name(&seen.link);
            let says = format!("no probe passed {link} either, which is not cut");
            return Err(Evidence::new(says, facts));
        }
    };
    let sent = cut.len() * PROBES as usize;
    let links = count(cut.len(), "cut link");
    let says = format!("0 of {sent} probes passed {links}; {control}");
    Ok(Evidence::new(says, facts))
}

async fn look_lossy(
    installed: &Installed,
    links: &BTreeSet<Link>,
    merged: &Merged,
    loss: f64,
) -> Result<Proof, Error> {
    // With so many probes the chance that none is lost is below 1 in 10^8.
    let count = (20.0 / loss.max(0.01)).ceil() as u32;
    let open = open_links(merged, links);
    let enough = |seen: &[Seen]| {
        seen.iter()
            .all(|seen| seen.received + seen.dropped >= u64::from(count))
    };
    let seen = send_and_count(installed, &open, count, enough).await?;
    let facts = json!({ "links": seen.iter().map(Seen::facts).collect::<Vec<_>>() });
    if let Some(seen) = seen.iter().find(|seen| seen.dropped == 0) {
        let says = format!(
            "none of {} probes was lost on {}",
            seen.sent,
            name(&seen.link)
        );
        return Ok(Err(Evidence::new(says, facts)));
    }
    let received: u64 = seen.iter().map(|seen| seen.received).sum();
    let sent = u64::from(count) * seen.len() as u64;
    Ok(not_shared(open.len(), links.len())
        .map(|()| Evidence::new(format!("{received} of {sent} probes passed"), facts)))
}

async fn look_slow(
    installed: &Installed,
    links: &BTreeSet<Link>,
    merged: &Merged,
    least: Duration,
) -> Result<Proof, Error> {
    let open = open_links(merged, links);
    let longest = open
        .iter()
        .filter_map(|(from, to)| merged.matrix.get(from, to).ok());
    let longest = longest
        .map(|policy| policy.delay + policy.jitter)
        .max()
        .unwrap_or_default();
    let lags = open
        .iter()
        .map(|link| lag(installed, link, longest + PATIENCE));
    let lags = try_join_all(lags).await?;
    let facts = open.iter().zip(&lags).map(|(link, lag)| {
        json!({ "link": name(link), "took_ms_min": lag.map(|lag| lag.as_secs_f64() * 1e3) })
    });
    let facts = json!({ "links": facts.collect::<Vec<_>>() });
    for (link, lag) in open.iter().zip(&lags) {
        let link = name(link);
        let says = match lag {
            None => format!("no probe passed {link}"),
            Some(lag) if *lag < least / 2 => format!("a probe passed {link} before {least:?}"),
            Some(_) => continue,
        };
        return Ok(Err(Evidence::new(says, facts)));
    }
    let fastest = lags
        .iter()
        .flatten()
        .min()
        .copied()
        .unwrap_or_default()
        .as_millis();
    Ok(not_shared(open.len(), links.len())
        .map(|()| Evidence::new(format!("probes needed more than {fastest} ms"), facts)))
}

async fn look_healed(
    installed: &Installed,
    links: &BTreeSet<Link>,
    merged: &Merged,
) -> Result<Proof, Error> {
    let clear: Vec<Link> = links
        .iter()
        .filter(|link| is_clear(merged, link))
        .cloned()
        .collect();
    let enough = |seen: &[Seen]| seen.iter().all(|seen| seen.received > 0);
    let seen = send_and_count(installed, &clear, PROBES, enough).await?;
    let facts = json!({ "links": seen.iter().map(Seen::facts).collect::<Vec<_>>() });
    if let Some(seen) = seen.iter().find(|seen| seen.received == 0) {
        let says = format!("no probe of {} passed {}", seen.sent, name(&seen.link));
        return Ok(Err(Evidence::new(says, facts)));
    }
    let received: u64 = seen.iter().map(|seen| seen.received).sum();
    let sent = seen.len() * PROBES as usize;
    let mut says = format!("{received} of {sent} probes pass again");
    if clear.len() < links.len() {
        let others = links.len() - clear.len();
        says += &format!("; {others} links are still in the hands of other faults");
    }
    Ok(Ok(Evidence::new(says, facts)))
}

/// Links that are not cut by another fault, so that something can be seen on them.
fn open_links(merged: &Merged, links: &BTreeSet<Link>) -> Vec<Link> {
    let open = |(from, to): &&Link| merged.matrix.get(from, to).is_ok_and(|policy| !policy.drop);
    links.iter().filter(open).cloned().collect()
}

/// Speaks against a claim when another fault cuts links on which something was to be seen.
fn not_shared(open: usize, links: usize) -> Result<(), Evidence> {
    match links - open {
        0 => Ok(()),
        cut => Err(Evidence::says(format!(
            "{cut} links are cut by other faults at the same time"
        ))),
    }
}

fn is_clear(merged: &Merged, (from, to): &Link) -> bool {
    merged
        .matrix
        .get(from, to)
        .is_ok_and(|policy| *policy == LinkPolicy::CLEAR)
}

/// A clear link, if possible one that shares both its ends or its receiver with a cut one.
fn control(merged: &Merged, cut: &BTreeSet<Link>) -> Option<Link> {
    let names = merged.matrix.names();
    let (from, to) = cut.first()?;
    let all = names
        .iter()
        .flat_map(|a| names.iter().map(move |b| (a.clone(), b.clone())));
    let clear = all.filter(|link| link.0 != link.1 && is_clear(merged, link));
    clear.max_by_key(|link| {
        let back = link.0 == *to && link.1 == *from;
        // Of links that serve equally well the first is taken, so that evidence is steady.
        (
            back,
            link.1 == *to,
            link.0 == *from,
            std::cmp::Reverse(link.clone()),
        )
    })
}

/// Sends probes on all links at once and counts until enough was seen or patience ends.
async fn send_and_count(
    installed: &Installed,
    links: &[Link],
    count: u32,
    enough: impl Fn(&[Seen]) -> bool,
) -> Result<Vec<Seen>, Error> {
    let access = &installed.access;
    let nodes = access.nodes();
    let at = |name: &str| {
        let unknown = || Error::UnknownNode(name.to_owned());
        nodes
            .iter()
            .position(|known| known == name)
            .ok_or_else(unknown)
    };
    let ends: Vec<(usize, usize)> = links
        .iter()
        .map(|(from, to)| Ok((at(from)?, at(to)?)))
        .collect::<Result<_, Error>>()?;
    let nonces: Vec<u64> = links.iter().map(|_| installed.nonce()).collect();
    let before = access.drops().await?;
    let probed = links.iter().zip(&nonces);
    let sent = join_all(
        probed
            .clone()
            .map(|((from, to), &nonce)| access.send_probes(from, to, nonce, count)),
    );
    sent.await.into_iter().collect::<Result<Vec<()>, Error>>()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        sleep(PERIOD).await;
        let drops = access.drops().await?;
        let received = probed
            .clone()
            .map(|((_, to), &nonce)| access.probes_received(to, nonce));
        let received = try_join_all(received).await?;
        let seen: Vec<Seen> = links
            .iter()
            .zip(&ends)
            .zip(received)
            .map(|((link, &(from, to)), received)| Seen {
                link: link.clone(),
                sent: count,
                received,
                dropped: drops.at(from, to) - before.at(from, to),
            })
            .collect();
        if enough(&seen) || Instant::now() >= deadline {
            return Ok(seen);
        }
    }
}

/// The time that a datagram needs at least: until the last look that did not find it. `None` if it
/// does not arrive.
async fn lag(
    installed: &Installed,
    (from, to): &Link,
    patience: Duration,
) -> Result<Option<Duration>, Error> {
    let nonce = installed.nonce();
    installed.access.send_probes(from, to, nonce, 1).await?;
    let sent = Instant::now();
    let mut missing = Duration::ZERO;
    while sent.elapsed() < patience {
        let asked = sent.elapsed();
        if installed.access.probes_received(to, nonce).await? > 0 {
            return Ok(Some(missing));
        }
        missing = asked;
        sleep(PERIOD).await;
    }
    Ok(None)
}
