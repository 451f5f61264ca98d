// SPDX-License-Identifier: Apache-2.0
//! Memory that is reached by the key of a lease, and by nothing else, until it is revoked.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use transfer_engine::{
    Access, Batch, Engine, Error, ErrorKind, Item, LeaseKey, Opcode, PagePool, Pages, Region,
    RegionOptions, Request, Result, Segment, State, SubmitOptions,
};

type Way<'a> = dyn Fn(&SubmitOptions<'_>) -> Result<u64> + 'a;

const SIZE: usize = 1000;

/// An engine that has memory for leases alone, and one that is to reach it.
struct World {
    near: Engine,
    local: Region<'static>,
    pool: Region<'static>,
    peer: Segment,
}

impl World {
    fn new() -> World {
        let engine = || Engine::builder().name("127.0.0.1").build().unwrap();
        let (near, far) = (engine(), engine());
        let local = near.register(vec![7; SIZE], Access::LocalOnly).unwrap();
        let pool = far.register(vec![0; 4 * SIZE], Access::LocalOnly).unwrap();
        let peer = near.open(&far.name().unwrap()).unwrap();
        World { near, local, pool, peer }
    }

    fn remote(&self) -> u64 {
        self.pool.addr() + SIZE as u64
    }

    /// How a batch of one request ends that is begun so.
    fn ends(&self, begin: impl FnOnce(&Batch<'static>) -> Result<()>) -> Result<u64> {
        let batch = self.near.batch(1).unwrap();
        begin(&batch).unwrap();
        let ended = batch.wait();
        if matches!(&ended, Err(error) if error.kind() == ErrorKind::Access) {
            assert_eq!(batch.status(0).unwrap().state, State::Invalid);
        }
        ended
    }

    fn write(&self, options: &SubmitOptions<'_>) -> Result<u64> {
        let request = Request::write(&self.local, 0..SIZE, &self.peer, self.remote());
        self.ends(|batch| batch.submit_with(std::slice::from_ref(&request), options))
    }

    fn read(&self, options: &SubmitOptions<'_>) -> Result<u64> {
        let request = Request::read(&self.local, 0..SIZE, &self.peer, self.remote());
        self.ends(|batch| batch.submit_with(std::slice::from_ref(&request), options))
    }

    fn is_there(&self, value: u8) -> bool {
        self.pool.to_vec(SIZE..2 * SIZE).unwrap() == [value; SIZE]
    }
}

fn shows(key: LeaseKey) -> SubmitOptions<'static> {
    SubmitOptions::new().lease(key)
}

fn is_refused(ended: Result<u64>, text: &str) {
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Access);
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn until_it_is_revoked() {
    let w = World::new();
    let lease = w.pool.lease(SIZE..2 * SIZE, Access::Write, None).unwrap();
    let key = LeaseKey::from(lease.key().to_bytes());
    assert_eq!(w.write(&SubmitOptions::new()).unwrap_err().kind(), ErrorKind::Stale);
    assert!(w.is_there(0));
    assert_eq!(w.write(&shows(key)).unwrap(), SIZE as u64);
    assert!(w.is_there(7));
    is_refused(w.read(&shows(key)), "the lease does not");
    assert_eq!(w.pool.to_vec(0..SIZE).unwrap(), [0; SIZE]);
    w.pool.fill(SIZE..2 * SIZE, 1).unwrap();
    lease.revoke().unwrap();
    is_refused(w.write(&shows(key)), "it was revoked");
    assert!(w.is_there(1));
    let next = w.pool.lease(SIZE..2 * SIZE, Access::ReadWrite, None).unwrap();
    assert_ne!(next.key(), key);
    is_refused(w.write(&shows(key)), "it was revoked");
    w.read(&shows(next.key())).unwrap();
    assert_eq!(w.local.to_vec(0..SIZE).unwrap(), [1; SIZE]);
    let dropped = next.key();
    drop(next);
    is_refused(w.read(&shows(dropped)), "it was revoked");
}

#[test]
fn by_prepared_lists_and_pages() {
    let w = World::new();
    let item = Item { region: &w.local, range: 0..SIZE, remote: w.remote() };
    let list = w.peer.prepare(&[item]).unwrap();
    let pool = PagePool { pages: 10, stride: SIZE as u64 / 10, ..PagePool::default() };
    let pages = Pages {
        opcode: Opcode::Write,
        region: &w.local,
        segment: &w.peer,
        length: pool.stride,
        count: 10,
        parts: 1,
        layers: 1,
        local: pool,
        remote: PagePool { base: w.remote(), ..pool },
    };
    let ways: [&Way; 2] = [
        &|options| w.ends(|batch| batch.submit_prepared(&list, Opcode::Write, &[0], options)),
        &|options| w.ends(|batch| batch.submit_pages(&pages, options)),
    ];
    for way in ways {
        let lease = w.pool.lease(SIZE..2 * SIZE, Access::Write, None).unwrap();
        w.pool.fill(0..4 * SIZE, 0).unwrap();
        assert_eq!(way(&SubmitOptions::new()).unwrap_err().kind(), ErrorKind::Stale);
        assert!(w.is_there(0));
        assert_eq!(way(&shows(lease.key())).unwrap(), SIZE as u64);
        assert!(w.is_there(7));
        let key = lease.key();
        lease.revoke().unwrap();
        is_refused(way(&shows(key)), "it was revoked");
    }
}

#[test]
fn for_its_time() {
    let w = World::new();
    let lease = w.pool.lease(SIZE..2 * SIZE, Access::Write, Some(Duration::MAX)).unwrap();
    w.write(&shows(lease.key())).unwrap();
    let short = w.pool.lease(SIZE..2 * SIZE, Access::Write, Some(Duration::from_nanos(1))).unwrap();
    let over = (0..1_000_000).map(|_| w.write(&shows(short.key()))).find(Result::is_err);
    is_refused(over.unwrap(), "the time of the lease is over");
    w.write(&shows(lease.key())).unwrap();
}

#[test]
fn what_is_wrong_with_it() {
    let w = World::new();
    let grant = |range, access, lifetime| w.pool.lease(range, access, lifetime).unwrap_err();
    let none = Some(Duration::ZERO);
    for error in [
        grant(0..0, Access::Read, None),
        grant(0..4 * SIZE + 1, Access::Read, None),
        grant(0..SIZE, Access::LocalOnly, None),
        grant(0..SIZE, Access::Read, none),
    ] {
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    is_refused(w.write(&shows(LeaseKey::from([5; 24]))), "");
}

#[test]
fn a_key_is_not_shown() {
    let w = World::new();
    let lease = w.pool.lease(0..SIZE, Access::Read, None).unwrap();
    let key = lease.key();
    assert_eq!(format!("{key:?}"), "LeaseKey { .. }");
    let shown = format!("{lease:?} {:?}", shows(key));
    assert!(shown.starts_with("Lease { id: "), "{shown}");
    for bytes in key.to_bytes().windows(3) {
        assert!(!shown.contains(&format!("{}, {}, {}", bytes[0], bytes[1], bytes[2])), "{shown}");
    }
}

/// An engine with TE_AUTH that shows the first of these ids, and knows them all; each has its letter 32 times as its key.
fn member(folder: &Path, ids: &[(&str, &str)]) -> Engine {
    let path = folder.join(ids[0].0);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    for (id, key) in ids {
        writeln!(file, "{id}:{key}").unwrap();
    }
    let path = path.to_str().unwrap();
    let builder = Engine::builder().name("127.0.0.1");
    builder.option("TE_AUTH", "psk").option("TE_AUTH_KEYS", path).build().unwrap()
}

#[test]
fn for_some_peers() {
    let keys = [
        ("a", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="),
        ("b", "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="),
        ("t", "Q0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0NDQ0M="),
    ];
    let folder = std::env::temp_dir().join(format!("te_rust_auth_{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let target = member(&folder, &[keys[2], keys[0], keys[1]]);
    let peers = [member(&folder, &[keys[0], keys[2]]), member(&folder, &[keys[1], keys[2]])];
    std::fs::remove_dir_all(&folder).unwrap();

    let pool = target
        .register(vec![0; 2 * SIZE], RegionOptions::new(Access::ReadWrite).allow("nobody,b"))
        .unwrap();
    let lease = pool.lease_for("a", SIZE..2 * SIZE, Access::Write, None).unwrap();
    let write = |peer: &Engine, at: usize, options: &SubmitOptions<'_>| {
        let source = peer.register(vec![7; SIZE], Access::LocalOnly).unwrap();
        let segment = peer.open(&target.name().unwrap()).unwrap();
        let batch = peer.batch(1).unwrap();
        let request = Request::write(&source, 0..SIZE, &segment, pool.addr() + at as u64);
        batch.submit_with(std::slice::from_ref(&request), options)?;
        batch.wait()
    };
    assert!(write(&peers[0], 0, &SubmitOptions::new()).is_err());
    assert_eq!(pool.to_vec(0..SIZE).unwrap(), [0; SIZE]);
    assert_eq!(write(&peers[1], 0, &SubmitOptions::new()).unwrap(), SIZE as u64);
    assert_eq!(pool.to_vec(0..SIZE).unwrap(), [7; SIZE]);
    let shown = shows(lease.key());
    is_refused(write(&peers[1], SIZE, &shown), "others alone");
    assert_eq!(write(&peers[0], SIZE, &shown).unwrap(), SIZE as u64);
    let wrong = RegionOptions::new(Access::ReadWrite).allow("a b");
    let error = target.register(vec![0; SIZE], wrong).unwrap_err();
    assert!(error.to_string().contains("is no id of a key file"), "{error}");
}
