// SPDX-License-Identifier: Apache-2.0
//! Two engines in one process: what the types promise, and what each function does.

mod common;

use common::{engine, engine_with_a_port, pair, random_bytes, Random, LONG};
use std::os::unix::io::{AsFd, AsRawFd};
use std::time::Duration;
use transfer_engine::{
    Access, CloseError, Engine, Error, ErrorKind, Item, Opcode, PageNumbers, PagePool, Pages,
    RegionOptions, Request, State, SubmitOptions,
};

const SIZE: usize = 1 << 20;

#[test]
fn random_bytes_go_both_ways_at_any_offset_and_size() {
    let (near, far) = pair();
    let mut random = Random::new();
    let served = far.register(random_bytes(&mut random, SIZE), Access::ReadWrite).unwrap();
    let mut there = served.to_vec(0..SIZE).unwrap();
    let local = near.register(random_bytes(&mut random, SIZE), Access::LocalOnly).unwrap();
    let mut here = local.to_vec(0..SIZE).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    assert_eq!(peer.buffers().unwrap()[0].addr, served.addr());

    for round in 0..60 {
        let length = match round {
            0 => 1,
            1 => SIZE,
            n => random.below(if n % 2 == 0 { 200 } else { SIZE }) + 1,
        };
        let (a, b) = (random.below(SIZE - length + 1), random.below(SIZE - length + 1));
        let (range, remote) = (a..a + length, served.addr() + b as u64);
        let batch = near.batch(1).unwrap();
        if round % 3 == 0 {
            batch.submit(&[Request::read(&local, range.clone(), &peer, remote)]).unwrap();
            here[range].copy_from_slice(&there[b..b + length]);
        } else {
            batch.submit(&[Request::write(&local, range.clone(), &peer, remote)]).unwrap();
            there[b..b + length].copy_from_slice(&here[range]);
        }
        assert_eq!(batch.wait().unwrap(), length as u64);
        assert_eq!(batch.status(0).unwrap().state, State::Completed);
        let path = batch.path(0).unwrap();
        assert!(!path.transport.is_empty() && path.changes == 0 && !path.staged, "{path:?}");
        assert!(batch.path(1).is_err());
        assert!(local.to_vec(0..SIZE).unwrap() == here, "round {round}: the local side");
        assert!(served.to_vec(0..SIZE).unwrap() == there, "round {round}: the remote side");
        let more = random_bytes(&mut random, length);
        local.copy_from(a, &more).unwrap();
        here[a..a + length].copy_from_slice(&more);
    }
}

#[test]
fn memory_of_every_origin() {
    let (near, far) = pair();
    let mut random = Random::new();
    let bytes = random_bytes(&mut random, 70_001);

    let boxed = far.register(bytes.clone().into_boxed_slice(), Access::Read).unwrap();
    let pages = near.alloc(100_000, RegionOptions::new(Access::LocalOnly).location("*")).unwrap();
    assert!(pages.to_vec(0..100_000).unwrap().iter().all(|b| *b == 0));
    let peer = near.open(&far.name().unwrap()).unwrap();
    let batch = near.batch(1).unwrap();
    let part = 7..7 + bytes.len();
    batch.submit(&[Request::read(&pages, part.clone(), &peer, boxed.addr())]).unwrap();
    batch.wait().unwrap();
    assert!(pages.to_vec(part).unwrap() == bytes);
    // SAFETY: peers may not touch the region, and no request is under way.
    assert_eq!(unsafe { pages.as_slice() }[7], bytes[0]);

    let mut others = vec![0u8; 1000];
    // SAFETY: the memory lives until after close().
    let raw = unsafe { near.register_raw(others.as_mut_ptr(), 1000, Access::LocalOnly) }.unwrap();
    raw.fill(10..20, 9).unwrap();
    raw.close().unwrap();
    assert_eq!(others.iter().filter(|b| **b == 9).count(), 10);

    match near.alloc(4096, RegionOptions::new(Access::LocalOnly).location("cuda:0")) {
        Ok(device) => {
            let untouchable = device.copy_from(0, &[1]).unwrap_err();
            assert_eq!(untouchable.kind(), ErrorKind::Unsupported);
        }
        Err(e) => assert!(matches!(e, Error::Unsupported(_) | Error::NoDevice(_)), "{e}"),
    }

    drop(batch);
    assert!(boxed.into_vec().unwrap() == bytes);
    let CloseError { region: pages, error: why } = pages.into_vec().unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Unsupported);
    pages.close().unwrap();
}

#[test]
fn many_threads_share_one_engine_and_its_regions() {
    const EACH: usize = 50_000;
    let (near, far) = pair();
    let served = far.register(vec![0; 8 * EACH], Access::ReadWrite).unwrap();
    let local = near.register(vec![0; 8 * EACH], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    std::thread::scope(|threads| {
        for i in 0..8 {
            let (near, local, peer, at) = (near.clone(), &local, &peer, i * EACH);
            let remote = served.addr() + at as u64;
            threads.spawn(move || {
                let mut random = Random::new();
                for _ in 0..20 {
                    let bytes = random_bytes(&mut random, EACH);
                    local.copy_from(at, &bytes).unwrap();
                    let there = near.batch(1).unwrap();
                    there.submit(&[Request::write(local, at..at + EACH, peer, remote)]).unwrap();
                    there.wait().unwrap();
                    local.fill(at..at + EACH, 0).unwrap();
                    let back = near.batch(2).unwrap();
                    let half = at + EACH / 2;
                    let middle = remote + (EACH / 2) as u64;
                    back.submit(&[Request::read(local, at..half, peer, remote)]).unwrap();
                    back.submit(&[Request::read(local, half..at + EACH, peer, middle)]).unwrap();
                    back.wait().unwrap();
                    assert!(local.to_vec(at..at + EACH).unwrap() == bytes);
                }
            });
        }
    });
}

#[test]
fn regions_in_use_stay_whoever_goes_first() {
    let (near, far) = pair();
    let served = far.register(vec![0; SIZE], Access::ReadWrite).unwrap();
    let local = near.register(vec![0x77; SIZE], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let batch = near.batch(4).unwrap();
    batch.submit(&[Request::write(&local, 0..SIZE, &peer, served.addr())]).unwrap();
    let CloseError { region: local, error: why } = local.into_vec().unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Busy);
    drop(local);
    drop(peer);
    assert_eq!(batch.wait().unwrap(), SIZE as u64);
    assert_eq!(near.stats().unwrap().regions, 1);
    drop(batch);
    assert_eq!(near.stats().unwrap().regions, 0);
    assert_eq!(near.stats().unwrap().segments_open, 0);
    assert!(near.metrics_text().unwrap().contains("\ntransfer_engine_regions 0\n"));
    assert!(served.into_vec().unwrap().iter().all(|b| *b == 0x77));
}

#[test]
fn a_scope_ends_what_was_leaked_in_it() {
    let (near, far) = pair();
    let served = far.register(vec![0x11; SIZE], Access::ReadWrite).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let mut memory = vec![0u8; SIZE];
    for dropped in [true, false] {
        near.scope(|scope| {
            let region = scope.register(&mut memory, Access::LocalOnly).unwrap();
            let batch = scope.batch(2).unwrap();
            batch.submit(&[Request::read(&region, 0..SIZE, &peer, served.addr())]).unwrap();
            assert_eq!(near.stats().unwrap().regions, 1);
            let item = Item { region: &region, range: 5..SIZE, remote: served.addr() };
            let list = peer.prepare(&[item]).unwrap();
            let options = SubmitOptions::new();
            batch.submit_prepared(&list, Opcode::Write, &[0], &options).unwrap();
            if !dropped {
                std::mem::forget((batch, list, region));
            }
        });
        assert_eq!(near.stats().unwrap().regions, 0);
        memory.fill(0);
    }
    let mut small = [1u8; 100];
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        near.scope(|scope| {
            std::mem::forget(scope.register(&mut small, Access::ReadWrite).unwrap());
            panic!("on purpose");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(near.stats().unwrap().regions, 0);
}

#[test]
fn errors_say_what_and_why() {
    let (near, far) = pair();
    let served = far.register(vec![0; 4096], Access::Read).unwrap();
    let local = near.register(vec![0; 4096], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let refused = |request: Request<'_, 'static>| -> Error {
        let batch = near.batch(1).unwrap();
        batch.submit(&[request]).and_then(|_| batch.wait()).unwrap_err()
    };
    let denied = refused(Request::write(&local, 0..10, &peer, served.addr()));
    assert_eq!(denied.kind(), ErrorKind::Access);
    assert!(!denied.message().is_empty());
    let missing = refused(Request::read(&local, 0..10, &peer, 0x10));
    assert_eq!(missing.kind(), ErrorKind::Stale);
    let beyond = refused(Request::read(&local, 4000..5000, &peer, served.addr()));
    assert!(matches!(&beyond, Error::Invalid(text) if text.contains("4000..5000")), "{beyond}");
    let foreign = refused(Request::read(&served, 0..10, &peer, served.addr()));
    assert_eq!(foreign.kind(), ErrorKind::Invalid);

    let batch = near.batch(1).unwrap();
    let one = Request::read(&local, 0..10, &peer, served.addr());
    let two = batch.submit(&[one.clone(), one.clone()]).unwrap_err();
    assert!(matches!(two, Error::TooMany(_)));
    assert!(batch.is_empty());
    batch.submit(&[one]).unwrap();
    assert_eq!(batch.wait_timeout(LONG).unwrap(), Some(10));

    assert_eq!(near.register(Vec::new(), Access::Read).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(near.open("no\0body").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(near.probe("127.0.0.1:1").unwrap_err().class(), transfer_engine::ErrorClass::Path);
    let option = Engine::builder().option("MC_NO_SUCH_OPTION", "1").build().unwrap_err();
    assert_eq!(option.kind(), ErrorKind::NotFound);
    assert!(option.to_string().contains("MC_NO_SUCH_OPTION"), "{option}");
    assert!(local.copy_from(4090, &[0; 7]).is_err());
    assert!(local.copy_to(usize::MAX, &mut [0; 7]).is_err());
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = local.to_vec(20..10);
    assert!(reversed.is_err());
}

#[test]
fn a_dropped_batch_leaves_quiet_memory() {
    const LARGE: usize = 64 << 20;
    let (near, far) = pair();
    let served = far.register(vec![1; LARGE], Access::Read).unwrap();
    let local = near.register(vec![0; LARGE], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    for _ in 0..3 {
        let batch = near.batch(1).unwrap();
        batch.submit(&[Request::read(&local, 0..LARGE, &peer, served.addr())]).unwrap();
        drop(batch);
        local.fill(0..LARGE, 0).unwrap();
        assert!(local.to_vec(0..LARGE).unwrap().iter().all(|b| *b == 0));
    }
    local.close().unwrap();
}

#[test]
fn a_wait_outlasts_what_other_threads_submit() {
    const MANY: usize = 20_000;
    let any_path = || Engine::builder().name("127.0.0.1").build().unwrap();
    let (near, far) = (any_path(), any_path());
    let served = far.register(vec![5; 100], Access::Read).unwrap();
    let local = near.register(vec![0; 100], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let batch = near.batch(MANY).unwrap();
    std::thread::scope(|threads| {
        let submits = threads.spawn(|| {
            for _ in 0..MANY {
                batch.submit(&[Request::read(&local, 0..10, &peer, served.addr())]).unwrap();
            }
        });
        while !submits.is_finished() {
            batch.wait().unwrap();
            assert!(batch.wait_timeout(LONG).unwrap().is_some());
        }
    });
    assert_eq!(batch.wait().unwrap(), 10 * MANY as u64);
}

#[test]
fn a_target_dropped_too_early_is_freed_when_its_request_is_over() {
    const LARGE: usize = 8 << 20;
    let near = engine();
    let here = near.local_segment();
    let source = near.register(vec![7; LARGE], Access::LocalOnly).unwrap();
    for round in 0..20 {
        let target = match round % 2 {
            0 => near.register(vec![0; LARGE], Access::LocalOnly).unwrap(),
            _ => near.alloc(LARGE, Access::LocalOnly).unwrap(),
        };
        let batch = near.batch(1).unwrap();
        batch.submit(&[Request::write(&source, 0..LARGE, &here, target.addr())]).unwrap();
        drop(target);
        batch.wait().unwrap();
        drop(batch);
        assert_eq!(near.stats().unwrap().regions, 1);
    }
    let nowhere = near.batch(1).unwrap();
    let refused = nowhere
        .submit(&[Request::write(&source, 0..100, &here, 0x1000)])
        .and_then(|_| nowhere.wait());
    assert!(refused.is_err());
}

#[test]
fn a_forked_child_has_no_engine() {
    let near = engine();
    let pages = near.alloc(1 << 20, Access::Read).unwrap();
    let owned = near.register(vec![5; 100], Access::Read).unwrap();
    let closed = |result: Result<(), Error>| matches!(result, Err(Error::Closed(_)));
    assert!(common::in_a_child(|| closed(near.name().map(drop))));
    assert!(common::in_a_child(|| closed(pages.copy_from(0, &[1]))));
    assert!(common::in_a_child(|| closed(pages.copy_to(0, &mut [1]))));
    assert!(common::in_a_child(|| closed(pages.to_vec(0..3).map(drop))));
    assert!(common::in_a_child(|| closed(owned.fill(0..3, 1))));
    assert_eq!(owned.to_vec(0..3).unwrap(), [5; 3]);
    assert!(common::in_a_child(move || {
        drop((pages, owned, near));
        true
    }));
}

#[test]
fn values_of_options_are_not_shown() {
    let builder = Engine::builder()
        .metadata("redis://:geheim1@127.0.0.1:6379")
        .option("MC_REDIS_PASSWORD", "geheim2");
    let shown = format!("{builder:?}");
    assert!(shown.contains("MC_REDIS_PASSWORD") && !shown.contains("geheim"), "{shown}");
}

#[test]
fn close_errors_become_errors() {
    fn closes(engine: &Engine) -> Result<Vec<u8>, Error> {
        let region = engine.alloc(100, Access::LocalOnly)?;
        Ok(region.into_vec()?)
    }
    fn boxes(engine: &Engine) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let region = engine.alloc(100, Access::LocalOnly)?;
        Ok(region.into_vec()?)
    }
    let near = engine();
    assert_eq!(closes(&near).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(boxes(&near).unwrap_err().to_string().contains("not made of a Vec"));
    assert_eq!(near.stats().unwrap().regions, 0);
}

#[test]
fn messages_probes_counters_and_explanations() {
    let (near, far) = pair();
    let served = far.register(vec![0; 100], Access::ReadWrite).unwrap();
    let local = near.register(vec![5; 100], Access::LocalOnly).unwrap();
    let name = far.name().unwrap();
    let peer = near.open(&name).unwrap();
    near.probe(&name).unwrap();
    peer.notify("first", "näher").unwrap();
    let batch = near.batch(1).unwrap();
    let request = Request::write(&local, 0..100, &peer, served.addr());
    let options = SubmitOptions::new().deadline(LONG).notify(&peer, "after", "the bytes");
    let options = options.traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let wrong = SubmitOptions::new().traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(batch.submit_with(std::slice::from_ref(&request), &wrong).is_err());
    batch.submit_with(std::slice::from_ref(&request), &options).unwrap();
    batch.wait().unwrap();
    let mut got = Vec::new();
    for _ in 0..2000 {
        got.extend(far.notifications().unwrap());
        if got.len() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let texts: Vec<_> = got.iter().map(|n| (n.name_text(), n.message_text())).collect();
    assert_eq!(texts, [("first".into(), "näher".into()), ("after".into(), "the bytes".into())]);
    assert!(far.notifications().unwrap().is_empty());
    let bytes: Vec<u8> = (0..=255).collect();
    peer.notify_bytes(&bytes, b"").unwrap();
    batch.notify_after(&peer, b"\0", &bytes).unwrap();
    assert!(batch.notify_after(&peer, b"", &vec![0; 2 << 20]).is_err());
    got.clear();
    for _ in 0..2000 {
        got.extend(far.notifications().unwrap());
        if got.len() >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((&got[0].name, got[0].message.len()), (&bytes, 0));
    assert_eq!((&got[1].name[..], &got[1].message), (&b"\0"[..], &bytes));

    let stats = near.stats().unwrap();
    assert_eq!((stats.requests_completed, stats.bytes_written), (1, 100));
    let explained = near.explain(&request).unwrap();
    assert!(explained.outcome.is_ok() && explained.text.contains("tcp"), "{explained:?}");
    assert!(near.topology_json().unwrap().starts_with('{'));
    assert!(near.links_json().unwrap().starts_with('{') && !near.links().unwrap().is_empty());
    assert!(near.local_segment().is_local() && !peer.is_local());
    near.refresh().unwrap();
    let own = near.open(&near.name().unwrap()).unwrap();
    let shown = near.register(vec![0; 200], Access::Read).unwrap();
    let listed = own.buffers().unwrap();
    assert!(
        own.is_local()
            && listed.len() == 1
            && listed[0].addr == shown.addr()
            && listed[0].len == 200
    );
    assert_eq!(transfer_engine::version(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn events_tell_of_finished_batches() {
    let (near, far) = pair();
    let served = far.register(vec![0; 1000], Access::ReadWrite).unwrap();
    let local = near.register(vec![5; 1000], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let events = near.events().unwrap();
    assert_eq!(events.as_fd().as_raw_fd(), events.as_raw_fd());
    assert!(events.take().unwrap().is_empty());
    let batches: Vec<_> = (0..100)
        .map(|i| {
            let batch = near.batch(1).unwrap();
            let part = Request::write(&local, i * 10..i * 10 + 10, &peer, served.addr());
            batch.submit(&[part]).unwrap();
            batch
        })
        .collect();
    let mut told = Vec::new();
    while told.len() < batches.len() {
        assert!(common::readable(&events, 60_000), "{} told", told.len());
        told.extend(events.take().unwrap());
    }
    let mut ids: Vec<_> = batches.iter().map(|b| b.id()).collect();
    ids.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, ids);
    assert!(batches.iter().all(|b| b.overall().unwrap().state == State::Completed));
}

#[test]
fn prepared_lists_move_the_items_that_are_named() {
    const PIECE: usize = 3001;
    let (near, far) = pair();
    let mut random = Random::new();
    let served = far.register(random_bytes(&mut random, 10 * PIECE), Access::ReadWrite).unwrap();
    let local = near.register(vec![0; 10 * PIECE], Access::LocalOnly).unwrap();
    let peer = near.open(&far.name().unwrap()).unwrap();
    let items: Vec<_> = (0..10)
        .map(|i| Item {
            region: &local,
            range: i * PIECE..(i + 1) * PIECE,
            remote: served.addr() + ((9 - i) * PIECE) as u64,
        })
        .collect();
    let list = peer.prepare(&items).unwrap();
    assert_eq!((list.len(), list.is_empty()), (10, false));
    let CloseError { region: local, error: why } = local.close().unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Busy);
    let batch = near.batch(3).unwrap();
    batch.submit_prepared(&list, Opcode::Read, &[2, 9, 0], &SubmitOptions::new()).unwrap();
    assert_eq!(batch.wait().unwrap(), 3 * PIECE as u64);
    for i in 0..10 {
        let have = local.to_vec(i * PIECE..(i + 1) * PIECE).unwrap();
        let want = match i {
            0 | 2 | 9 => served.to_vec((9 - i) * PIECE..(10 - i) * PIECE).unwrap(),
            _ => vec![0; PIECE],
        };
        assert!(have == want, "item {i}");
    }
    let batch = near.batch(1).unwrap();
    let no_such = batch.submit_prepared(&list, Opcode::Write, &[10], &SubmitOptions::new());
    assert_eq!(no_such.unwrap_err().kind(), ErrorKind::Invalid);
    drop((list, batch));
    let why = local.close().unwrap_err().error; // the first batch has it, too
    assert_eq!(why.kind(), ErrorKind::Busy);
}

#[test]
fn pages_by_their_numbers() {
    let (near, far) = (engine(), engine());
    let served = far.register((0..200).collect::<Vec<u8>>(), Access::Read).unwrap();
    let local = near.register(vec![0; 100], Access::LocalOnly).unwrap();
    let segment = near.open(&far.name().unwrap()).unwrap();
    let mut pages = Pages {
        opcode: Opcode::Read,
        region: &local,
        segment: &segment,
        length: 5,
        count: 3,
        parts: 1,
        layers: 2,
        local: PagePool {
            pages: 10,
            stride: 5,
            layer_stride: 50,
            numbers: PageNumbers::Wide(&[9, 0, 4]),
            ..PagePool::default()
        },
        remote: PagePool {
            base: served.addr(),
            pages: 20,
            stride: 10,
            layer_stride: 5,
            ..PagePool::default()
        },
    };
    let batch = near.batch(1).unwrap();
    batch.submit_pages(&pages, &SubmitOptions::new()).unwrap();
    assert_eq!(batch.wait().unwrap(), 30);
    let have = local.to_vec(0..100).unwrap();
    for layer in 0..2 {
        for (i, k) in [9, 0, 4].into_iter().enumerate() {
            let (to, from) = (layer * 50 + k * 5, i * 10 + layer * 5);
            assert_eq!(have[to..to + 5], served.to_vec(from..from + 5).unwrap());
        }
    }
    let refused = |pages: &Pages<'_, 'static>| {
        let batch = near.batch(1).unwrap();
        batch.submit_pages(pages, &SubmitOptions::new()).unwrap_err()
    };
    pages.remote.numbers = PageNumbers::Wide(&[0, 20, 0]);
    let why = refused(&pages).to_string();
    assert!(why.contains("remote.index[1] is page 20"), "{why}");
    pages.remote.numbers = PageNumbers::Narrow(&[0, 1, 2]);
    assert_eq!(refused(&pages).kind(), ErrorKind::Invalid);
    pages.remote.numbers = PageNumbers::Wide(&[0, 1]);
    assert_eq!(refused(&pages).kind(), ErrorKind::Invalid);
    pages.remote.numbers = PageNumbers::InOrder;
    pages.local.pages = 11; // beyond the region
    assert_eq!(refused(&pages).kind(), ErrorKind::Invalid);
    pages.local.stride = u64::MAX;
    assert_eq!(refused(&pages).kind(), ErrorKind::Invalid);
}

#[test]
fn handles_keep_the_engine_and_its_last_owner_ends_it() {
    let near = engine_with_a_port();
    let name = near.name().unwrap();
    assert_eq!(name, near.address().unwrap());
    let other = engine();
    let region = near.register(vec![1; 100], Access::Read).unwrap();
    drop(near);
    other.probe(&name).unwrap();
    assert_eq!(region.to_vec(0..3).unwrap(), [1, 1, 1]);
    drop(region);
    assert!(other.probe(&name).is_err());
}

#[test]
fn everything_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Engine>();
    check::<transfer_engine::EngineBuilder>();
    check::<transfer_engine::Region<'_>>();
    check::<transfer_engine::Segment>();
    check::<transfer_engine::Batch<'_>>();
    check::<transfer_engine::Prepared<'_>>();
    check::<transfer_engine::Events>();
    check::<transfer_engine::Counter>();
    check::<transfer_engine::Adder>();
    check::<transfer_engine::Scope<'_, '_>>();
    check::<Request<'_, '_>>();
    check::<Error>();
}
