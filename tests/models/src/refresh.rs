// SPDX-License-Identifier: Apache-2.0
//! What waits for a fresh descriptor of its peer, and the job that fetches it, src/core/park.c.
//!
//! Promised: a fetch that begins before a request parks, or before somebody asks for a fresh descriptor, is not taken
//! for theirs; each request goes on or is cancelled, once; there is one job at a time, and nothing is left behind by it.
//!
//! All is under the peer's lock in C as here. The job runs on the thread that begins it: who parks does nothing else
//! afterwards.
use crate::kit::explore;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use loom::sync::{Mutex, RwLock};
use loom::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    ParkedWithTheFetch,
    AgainForgotten,
    NumberOfTheFetch,
    LookedBeforeTheEnd,
    CancelDoesNotWait,
}
use Wrong::*;

#[derive(Default)]
struct State {
    parked: Vec<usize>, // the version of the descriptor that each needs
    fetching: Vec<usize>,
    refreshing: bool,
    again: bool,
    fetches: usize,
    fetched: usize,
    version: usize, // of the view
    jobs: usize,
}

struct Peer {
    wrong: Wrong,
    owner: AtomicUsize, // the version that the owner has published
    canceled: AtomicBool,
    state: Mutex<State>,
    repost: RwLock<()>,
    posted: Mutex<usize>, // with a transport
    ended: AtomicUsize,
}

impl Peer {
    fn new(wrong: Wrong) -> Arc<Peer> {
        Arc::new(Peer {
            wrong,
            owner: AtomicUsize::new(0),
            canceled: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            repost: RwLock::new(()),
            posted: Mutex::new(0),
            ended: AtomicUsize::new(0),
        })
    }

    // C src/core/park.c begin_refresh: refs.fetch_add relaxed
    fn begin(s: &mut State) -> bool {
        let start = !s.refreshing;

        s.refreshing = true;
        start
    }

    fn park(&self, needs: usize) {
        let mut s = self.state.lock().unwrap();

        if self.canceled.load(Relaxed) {
            self.ended.fetch_add(1, Relaxed);
            return;
        }
        s.parked.push(needs);
        let start = Peer::begin(&mut s);
        drop(s);
        if start {
            self.job();
        }
    }

    // C src/core/park.c tei_peer_refresh: closing.load relaxed
    fn refresh(&self) -> usize {
        let mut s = self.state.lock().unwrap();
        let start = Peer::begin(&mut s);
        let number = s.fetches + (self.wrong != NumberOfTheFetch) as usize;

        s.again = !start && self.wrong != AgainForgotten;
        drop(s);
        if start {
            self.job();
        }
        number
    }

    fn post(&self, tasks: Vec<usize>, version: usize) {
        for needs in tasks {
            assert!(version >= needs, "a request goes on with an old descriptor");
            if self.canceled.load(Relaxed) {
                self.ended.fetch_add(1, Relaxed);
            } else {
                *self.posted.lock().unwrap() += 1;
            }
        }
    }

    fn settle(&self, version: usize) -> bool {
        let _with_a_transport =
            (self.wrong != CancelDoesNotWait).then(|| self.repost.read().unwrap());
        let early =
            self.wrong == LookedBeforeTheEnd && self.state.lock().unwrap().parked.is_empty();
        let mut s = self.state.lock().unwrap();
        let mut tasks = std::mem::take(&mut s.fetching);

        if self.wrong == ParkedWithTheFetch {
            tasks.append(&mut s.parked);
        }
        let more = (!early && !s.parked.is_empty()) || s.again;
        s.refreshing = more;
        s.fetched = s.fetches;
        s.version = version;
        s.jobs -= 1;
        drop(s);
        self.post(tasks, version);
        more
    }

    // C src/core/park.c refresh_job: closing.load relaxed
    fn job(&self) {
        loop {
            let mut s = self.state.lock().unwrap();

            s.jobs += 1;
            assert_eq!(s.jobs, 1, "two jobs at a time");
            s.fetching = std::mem::take(&mut s.parked);
            s.again = false;
            s.fetches += 1;
            drop(s);
            let version = self.owner.load(Acquire);
            if !self.settle(version) {
                break;
            }
        }
    }

    /// te_cancel(): marks, ends what is parked, waits for what is on its way, and tells the transports.
    fn cancel(&self) {
        self.canceled.store(true, Relaxed);
        let mut s = self.state.lock().unwrap();
        let found = std::mem::take(&mut s.parked).len() + std::mem::take(&mut s.fetching).len();
        drop(s);
        drop(self.repost.write().unwrap());
        let posted = std::mem::take(&mut *self.posted.lock().unwrap());
        self.ended.fetch_add(found + posted, Relaxed);
    }

    fn expect_quiet(&self) {
        let s = self.state.lock().unwrap();

        assert!(
            !s.refreshing && s.parked.is_empty() && s.fetching.is_empty(),
            "something is left behind"
        );
    }
}

/// A request finds that the descriptor is old, and parks beside the job of another; a third asks for a fresh one.
fn park_and_refresh(wrong: Wrong) {
    explore(move || {
        let p = Peer::new(wrong);
        let (parks, asks) = (Arc::clone(&p), Arc::clone(&p));
        let one = thread::spawn(move || parks.park(0));
        let two = thread::spawn(move || {
            asks.owner.store(1, Release);
            let number = asks.refresh();
            let s = asks.state.lock().unwrap();

            assert!(s.fetched < number || s.version == 1, "what was fetched is old");
            number
        });

        p.owner.fetch_max(1, AcqRel);
        p.park(1);
        one.join().unwrap();
        let number = two.join().unwrap();
        p.expect_quiet();
        assert_eq!(*p.posted.lock().unwrap(), 2, "a request is lost");
        assert!(p.state.lock().unwrap().fetched >= number, "nobody has fetched what was asked for");
    });
}

fn park_and_cancel(wrong: Wrong) {
    explore(move || {
        let p = Peer::new(wrong);
        let parks = Arc::clone(&p);
        let one = thread::spawn(move || parks.park(0));

        p.cancel();
        one.join().unwrap();
        p.expect_quiet();
        assert_eq!(p.ended.load(Relaxed), 1, "the request did not end once");
    });
}

#[test]
fn what_waits_gets_what_is_fetched_after_it() {
    park_and_refresh(Nothing);
}

#[test]
#[should_panic(expected = "a request goes on with an old descriptor")]
fn what_waits_gets_what_is_fetched_after_it_or_before() {
    park_and_refresh(ParkedWithTheFetch);
}

#[test]
#[should_panic(expected = "nobody has fetched what was asked for")]
fn what_waits_gets_what_is_fetched_after_it_without_another_fetch() {
    park_and_refresh(AgainForgotten);
}

#[test]
#[should_panic(expected = "what was fetched is old")]
fn what_waits_gets_what_is_fetched_after_it_by_the_number_of_that_fetch() {
    park_and_refresh(NumberOfTheFetch);
}

#[test]
#[should_panic(expected = "something is left behind")]
fn what_waits_gets_what_is_fetched_after_it_unless_looked_at_too_early() {
    park_and_refresh(LookedBeforeTheEnd);
}

#[test]
fn what_waits_is_cancelled_once() {
    park_and_cancel(Nothing);
}

#[test]
#[should_panic(expected = "the request did not end once")]
fn what_waits_is_cancelled_once_without_waiting_for_its_way() {
    park_and_cancel(CancelDoesNotWait);
}
