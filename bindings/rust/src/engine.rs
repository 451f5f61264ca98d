// SPDX-License-Identifier: Apache-2.0
//! The engine, and how to make one.

use crate::batch::Batch;
use crate::counter::Counter;
use crate::error::{check, Error, ErrorKind, Result};
use crate::event::Events;
use crate::notify::{self, Notification};
use crate::observe::{Explanation, Stats};
use crate::paths::Paths;
use crate::region::{self, Memory, OwnedBytes, Region, RegionOptions};
use crate::request::Request;
use crate::scope::{self, Scope};
use crate::segment::Segment;
use crate::sys;
use crate::text::{cut, or_null, to_c, written};
use std::ffi::CString;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const EXPLANATION: usize = 16 << 10;
const A_PASS: Duration = Duration::from_millis(100);

/// The C engine. Everything that was made of it keeps it; the last owner ends it.
pub(crate) struct Handle {
    raw: NonNull<sys::te_engine>,
    process: u32,
    /// Memory of regions that are gone but could not be unregistered yet.
    left: Mutex<Vec<Memory>>,
}

// SAFETY: every function of te.h may be called from any thread at any time, but for
// te_engine_destroy(), which Drop calls once nobody else has the handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn new(raw: NonNull<sys::te_engine>) -> Handle {
        Handle { raw, process: std::process::id(), left: Mutex::default() }
    }

    pub(crate) fn raw(&self) -> *mut sys::te_engine {
        self.raw.as_ptr()
    }

    /// Whether this is the process that made the engine, and not a forked child of it.
    pub(crate) fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    pub(crate) fn left(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory that is still registered, for end_left() to end.
    pub(crate) fn leave(&self, memory: Memory) {
        self.left().push(memory);
    }

    /// Unregisters and frees what was left, as far as it can be by now. Each try may take a second
    /// where a peer is stopped in the middle of writing, so a pass ends after the first that is slow.
    pub(crate) fn end_left(&self) {
        self.end_left_within(A_PASS);
    }

    fn end_left_within(&self, time: Duration) {
        if !self.is_here() {
            return; // a lock may be held for ever in a forked child
        }
        let began = Instant::now();
        let mut left = std::mem::take(&mut *self.left());
        let mut tried = Vec::new();
        while let Some(memory) = left.pop() {
            match region::unregister(self, memory.addr()) {
                Ok(()) => memory.free(self),
                Err(_) => tried.push(memory),
            }
            if began.elapsed() > time {
                break;
            }
        }
        // First in the list is last in the next pass.
        tried.append(&mut left);
        if !tried.is_empty() {
            self.left().splice(0..0, tried);
        }
    }
}

impl Drop for Handle {
    /// Memory that is left even now is lost for good: a peer may be stopped in the middle of writing.
    fn drop(&mut self) {
        self.end_left_within(Duration::MAX);
        // SAFETY: made by te_engine_create(), and this is the last use of it.
        unsafe { sys::te_engine_destroy(self.raw()) }
    }
}

/// How to make an [`Engine`]; from [`Engine::builder`].
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::Engine;
///
/// // Known to others by a name, which a metadata server resolves.
/// let engine = Engine::builder()
///     .metadata("http://10.0.0.9:8080/metadata")
///     .name("decode-1")
///     .option("TE_TCP_CRC32C", "1")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct EngineBuilder {
    metadata: String,
    name: Option<String>,
    address: Option<String>,
    rpc_port: u16,
    auto_discover: bool,
    options: Vec<(String, String)>,
}

impl EngineBuilder {
    /// Where engines find each other: `P2PHANDSHAKE` (the default; no server, a segment's name is its
    /// engine's host:port), `http://host:port/path`, `etcd://host:port`, `redis://host:port`.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Name of this engine's segment, unique in the cluster. `host:port` also asks for that handshake
    /// port. Default: this machine's host name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Address told to peers. Default: the host of the name, else the one that routes to the metadata.
    pub fn address(mut self, host: impl Into<String>) -> Self {
        self.address = Some(host.into());
        self
    }

    /// Handshake port, 0 (the default) for any of the configured range.
    pub fn rpc_port(mut self, port: u16) -> Self {
        self.rpc_port = port;
        self
    }

    /// Whether transports are picked and installed by what the machine has. Default: true. Else
    /// [`Engine::install_transport`] does.
    pub fn auto_discover(mut self, on: bool) -> Self {
        self.auto_discover = on;
        self
    }

    /// Sets one option by the name of its environment variable (`MC_SLICE_SIZE`), which it beats.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((name.into(), value.into()));
        self
    }

    /// Makes and starts the engine. May block for as long as a metadata server takes to answer.
    pub fn build(&self) -> Result<Engine> {
        let metadata = to_c(&self.metadata)?;
        let name = self.name.as_deref().map(to_c).transpose()?;
        let address = self.address.as_deref().map(to_c).transpose()?;
        let mut options = Options::new();
        options.raw.metadata = metadata.as_ptr();
        options.raw.local_server_name = or_null(&name);
        options.raw.ip_or_host_name = or_null(&address);
        options.raw.rpc_port = u32::from(self.rpc_port);
        options.raw.auto_discover = i32::from(self.auto_discover);
        for (name, value) in &self.options {
            options.set(&to_c(name)?, &to_c(value)?)?;
        }
        let mut out = std::ptr::null_mut();
        // SAFETY: the strings live until the end of this function and are copied by the call.
        check(unsafe { sys::te_engine_create(&options.raw, &mut out) })?;
        let handle = NonNull::new(out)
            .ok_or_else(|| Error::System("te_engine_create() gave no engine".into()))?;
        Ok(Engine { handle: Arc::new(Handle::new(handle)) })
    }
}

/// Values of options may be secrets, and so may the metadata's address: it has room for a password.
impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&str> = self.options.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("EngineBuilder")
            .field("name", &self.name)
            .field("address", &self.address)
            .field("rpc_port", &self.rpc_port)
            .field("auto_discover", &self.auto_discover)
            .field("options", &options)
            .finish_non_exhaustive()
    }
}

struct Options {
    raw: sys::te_options,
}

impl Options {
    fn new() -> Options {
        let mut raw = std::mem::MaybeUninit::<sys::te_options>::zeroed();
        // SAFETY: the call fills a struct of that size, which may be all zeroes before.
        unsafe {
            sys::te_options_init_size(raw.as_mut_ptr(), std::mem::size_of::<sys::te_options>());
            Options { raw: raw.assume_init() }
        }
    }

    fn set(&mut self, name: &CString, value: &CString) -> Result<()> {
        // SAFETY: initialised above; the strings are copied.
        check(unsafe { sys::te_option_set(&mut self.raw, name.as_ptr(), value.as_ptr()) })?;
        Ok(())
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: initialised by new(), released once.
        unsafe { sys::te_options_fini(&mut self.raw) }
    }
}

/// An engine: moves bytes between memory that this process has registered with it and memory that
/// other engines have registered.
///
/// It is a handle: clones are the same engine, any thread may use it, and regions, segments, batches
/// and events keep it alive. When the last of them is dropped it withdraws its segment and joins its
/// threads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::Engine;
///
/// let engine = Engine::builder().name("127.0.0.1").build()?;
/// assert!(engine.name()?.starts_with("127.0.0.1:")); // which others open
/// engine.probe(&engine.name()?)?; // it answers
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) handle: Arc<Handle>,
}

impl Engine {
    /// An engine with the defaults and this place where engines find each other, `P2PHANDSHAKE` for
    /// instance.
    pub fn new(metadata: impl Into<String>) -> Result<Engine> {
        Engine::builder().metadata(metadata).build()
    }

    /// To say more about the engine than [`Engine::new`] does.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            metadata: "P2PHANDSHAKE".into(),
            name: None,
            address: None,
            rpc_port: 0,
            auto_discover: true,
            options: Vec::new(),
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::te_engine {
        self.handle.raw()
    }

    /// `host:port` of the handshake listener, as peers are told it.
    pub fn address(&self) -> Result<String> {
        // SAFETY: the engine lives; the buffer has the room that is told.
        written(ErrorKind::Invalid, |buf, n| unsafe { sys::te_engine_addr(self.raw(), buf, n) })
    }

    /// Name of this engine's segment: what peers pass to [`Engine::open`].
    pub fn name(&self) -> Result<String> {
        // SAFETY: as above.
        written(ErrorKind::Invalid, |buf, n| unsafe { sys::te_engine_name(self.raw(), buf, n) })
    }

    /// Installs a transport (`tcp`, ...) that automatic discovery did not. `arg` is what the transport
    /// is to use, a NIC priority matrix as JSON for instance.
    pub fn install_transport(&self, name: &str, arg: Option<&str>) -> Result<()> {
        let name = to_c(name)?;
        let arg = arg.map(to_c).transpose()?;
        // SAFETY: the engine lives; the strings are read during the call only.
        check(unsafe { sys::te_transport_install(self.raw(), name.as_ptr(), or_null(&arg)) })?;
        Ok(())
    }

    /// Removes a transport. [`Error::Busy`] while transfers use it.
    pub fn uninstall_transport(&self, name: &str) -> Result<()> {
        let name = to_c(name)?;
        // SAFETY: as above.
        check(unsafe { sys::te_transport_uninstall(self.raw(), name.as_ptr()) })?;
        Ok(())
    }

    /// The NIC priority matrix, as JSON.
    pub fn topology_json(&self) -> Result<String> {
        // SAFETY: the engine lives; the buffer has the room that is told.
        written(ErrorKind::TooLarge, |buf, n| unsafe { sys::te_topology_json(self.raw(), buf, n) })
    }

    /// NICs and topology as text for people.
    pub fn links(&self) -> Result<String> {
        self.links_as(false)
    }

    /// The same as JSON.
    pub fn links_json(&self) -> Result<String> {
        self.links_as(true)
    }

    fn links_as(&self, json: bool) -> Result<String> {
        let json = i32::from(json);
        // SAFETY: the engine lives; the buffer has the room that is told.
        written(ErrorKind::TooLarge, |buf, n| unsafe { sys::te_links(self.raw(), json, buf, n) })
    }

    /// Registers memory that the region owns from now on: `Vec<u8>` or `Box<[u8]>`. An [`Access`] alone
    /// does for the options. [`Region::into_vec`] gives the memory back. After an error it is freed.
    ///
    /// Borrowed memory is for [`Engine::scope`]:
    ///
    /// ```compile_fail,E0277
    /// # use transfer_engine::{Access, Engine};
    /// # fn f(engine: &Engine, bytes: &mut [u8]) {
    /// let region = engine.register(bytes, Access::ReadWrite);
    /// # }
    /// ```
    ///
    /// [`Access`]: crate::Access
    pub fn register<'o>(
        &self,
        memory: impl OwnedBytes,
        options: impl Into<RegionOptions<'o>>,
    ) -> Result<Region<'static>> {
        Region::new(&self.handle, Memory::of_vec(memory.into_bytes()), &options.into())
    }

    /// Allocates zeroed, page-aligned memory at the location of the options (on a NUMA node, on a
    /// device) and registers it. Engines of other processes of this host reach such memory fastest.
    pub fn alloc<'o>(
        &self,
        length: usize,
        options: impl Into<RegionOptions<'o>>,
    ) -> Result<Region<'static>> {
        let options = options.into();
        let memory = Memory::alloc(&self.handle, length, options.location)?;
        Region::new(&self.handle, memory, &options)
    }

    /// Registers memory that somebody else owns: shared memory, memory mapped from a file, memory that
    /// another library allocated.
    ///
    /// # Safety
    ///
    /// `length` bytes at `addr` stay valid until the region is gone for good, which is when
    /// [`Region::close`] has said so, or for ever if it is dropped or leaked; until then nothing but this
    /// region's methods and the transfers of engines touches them, not another region either. They are
    /// initialised, and writable unless nothing writes to them: no peer by the region's access or a lease, no
    /// request, be it with the region as its memory or, on the engine's own segment, as its target, no
    /// method. Memory of a device comes with that device as its location. A forked child does not use
    /// `as_slice` and `as_mut_slice` of the region.
    pub unsafe fn register_raw<'o>(
        &self,
        addr: *mut u8,
        length: usize,
        options: impl Into<RegionOptions<'o>>,
    ) -> Result<Region<'static>> {
        Region::new(&self.handle, Memory::of_others(addr, length)?, &options.into())
    }

    /// Runs `f` with a [`Scope`], within which borrowed memory can be registered. When it returns, or
    /// panics, all that was registered in it is unregistered, and requests on it are over.
    ///
    /// ```
    /// # fn main() -> transfer_engine::Result<()> {
    /// use transfer_engine::{Access, Engine, Request};
    ///
    /// let engine = Engine::builder().name("127.0.0.1").build()?;
    /// let here = engine.open(&engine.name()?)?;
    /// let mut source = [7u8; 100];
    /// let mut target = [0u8; 100];
    /// engine.scope(|scope| {
    ///     let source = scope.register(&mut source, Access::LocalOnly)?;
    ///     let target = scope.register(&mut target, Access::Write)?;
    ///     let batch = scope.batch(1)?;
    ///     batch.submit(&[Request::write(&source, 0..100, &here, target.addr())])?;
    ///     batch.wait()
    /// })?;
    /// assert_eq!(source, target);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The memory is the region's until the scope ends:
    ///
    /// ```compile_fail,E0506
    /// # use transfer_engine::{Access, Engine};
    /// # fn f(engine: &Engine) {
    /// let mut bytes = [0u8; 100];
    /// engine.scope(|scope| {
    ///     let region = scope.register(&mut bytes, Access::ReadWrite);
    ///     bytes[0] = 1; // a peer may be writing here
    /// });
    /// # }
    /// ```
    ///
    /// It outlives the scope:
    ///
    /// ```compile_fail,E0597
    /// # use transfer_engine::{Access, Engine};
    /// # fn f(engine: &Engine) {
    /// engine.scope(|scope| {
    ///     let mut bytes = [0u8; 100];
    ///     scope.register(&mut bytes, Access::ReadWrite).map(|_| ())
    /// });
    /// # }
    /// ```
    ///
    /// The region stays in it:
    ///
    /// ```compile_fail
    /// # use transfer_engine::{Access, Engine};
    /// # fn f(engine: &Engine) {
    /// let mut bytes = [0u8; 100];
    /// let region = engine.scope(|scope| scope.register(&mut bytes, Access::ReadWrite));
    /// # }
    /// ```
    ///
    /// And only a batch of the scope takes it:
    ///
    /// ```compile_fail,E0521
    /// # use transfer_engine::{Access, Engine, Request, Result, Segment};
    /// # fn f(engine: &Engine, peer: &Segment) -> Result<()> {
    /// let mut bytes = [0u8; 100];
    /// let batch = engine.batch(1)?;
    /// engine.scope(|scope| {
    ///     let region = scope.register(&mut bytes, Access::LocalOnly)?;
    ///     batch.submit(&[Request::read(&region, 0..100, peer, 0x1000)])
    /// })
    /// # }
    /// ```
    pub fn scope<'env, F, T>(&'env self, f: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        scope::run(self, f)
    }

    /// Opens the segment of that name: the memory that the engine called so lets others reach. Blocks
    /// while its descriptor is fetched.
    pub fn open(&self, name: &str) -> Result<Segment> {
        Segment::open(&self.handle, name, &Paths::new())
    }

    /// The same of a segment whose requests all go by these paths. [`ErrorKind::Exists`] if it is open already,
    /// with others.
    ///
    /// [`ErrorKind::Exists`]: crate::ErrorKind::Exists
    pub fn open_with(&self, name: &str, paths: &Paths) -> Result<Segment> {
        Segment::open(&self.handle, name, paths)
    }

    /// The random number of this engine, which the next one of its name has not; never 0.
    pub fn incarnation(&self) -> u64 {
        // SAFETY: the engine lives.
        unsafe { sys::te_incarnation(self.raw()) }
    }

    /// The segment of one life of its engine, whose [`incarnation`](Engine::incarnation) that is; 0: of the one that
    /// has the name now. What is meant for it never gets to an engine that is started under its name later, but ends
    /// [`ErrorKind::Stale`].
    ///
    /// [`ErrorKind::Stale`]: crate::ErrorKind::Stale
    pub fn open_life(&self, name: &str, incarnation: u64, paths: &Paths) -> Result<Segment> {
        Segment::open_life(&self.handle, name, incarnation, paths)
    }

    /// This engine's own segment. Requests on it are copies between regions of this engine, whatever
    /// their [`Access`](crate::Access) says of peers.
    pub fn local_segment(&self) -> Segment {
        Segment::local(&self.handle)
    }

    /// Fetches the descriptors of all open segments again. Not needed for correctness.
    pub fn refresh(&self) -> Result<()> {
        // SAFETY: the engine lives; NULL stands for all.
        check(unsafe { sys::te_refresh(self.raw(), std::ptr::null()) })?;
        Ok(())
    }

    /// A batch with room for so many requests in total, on regions that own their memory.
    pub fn batch(&self, capacity: usize) -> Result<Batch<'static>> {
        Batch::new(&self.handle, capacity, None)
    }

    /// What tells of finished batches to `poll(2)` and its like.
    pub fn events(&self) -> Result<Events> {
        Events::new(&self.handle)
    }

    /// Takes all messages that peers have sent so far, oldest first.
    pub fn notifications(&self) -> Result<Vec<Notification>> {
        notify::receive(&self.handle)
    }

    /// Makes a counter of that name, which is 0, for peers to raise ([`Segment::adder`]). 1 to 255 bytes; who
    /// reaches the handshake port and knows the name can raise it.
    pub fn counter(&self, name: &str) -> Result<Counter> {
        Counter::new(&self.handle, name)
    }

    /// Asks the engine of that name whether it lives.
    pub fn probe(&self, name: &str) -> Result<()> {
        let name = to_c(name)?;
        // SAFETY: the engine lives; the string is read during the call only.
        check(unsafe { sys::te_probe(self.raw(), name.as_ptr()) })?;
        Ok(())
    }

    /// Counters since the engine was made.
    pub fn stats(&self) -> Result<Stats> {
        let size = std::mem::size_of::<sys::te_stats>();
        let mut raw = sys::te_stats { size, ..sys::te_stats::default() };
        // SAFETY: the engine lives; the struct says how large it is.
        check(unsafe { sys::te_stats(self.raw(), &mut raw) })?;
        Ok(Stats::from(raw))
    }

    /// The metrics as Prometheus scrapes them; docs/metrics.md lists them.
    pub fn metrics_text(&self) -> Result<String> {
        // SAFETY: the engine lives; the buffer has the room that is told.
        written(ErrorKind::TooLarge, |buf, n| unsafe { sys::te_stats_text(self.raw(), buf, n) })
    }

    /// Which transport would carry a request, and why not each other one. Nothing is started.
    pub fn explain(&self, request: &Request<'_, '_>) -> Result<Explanation> {
        let raw = request.raw(&self.handle)?;
        let (text, rc) = cut(EXPLANATION, |buf, n| {
            // SAFETY: the engine lives; the request is read during the call; the buffer has the room.
            unsafe { sys::te_explain(self.raw(), &raw, buf, n) }
        });
        Ok(Explanation { text, outcome: check(rc).map(|_| ()) })
    }

    /// From now on SIGTERM and SIGINT take this engine's segment out of the metadata and then end the
    /// process with status 128 + signal number. For programs that have no shutdown of their own.
    pub fn shutdown_on_signal(&self) -> Result<()> {
        // SAFETY: the engine lives.
        check(unsafe { sys::te_shutdown_on_signal(self.raw()) })?;
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.name().unwrap_or_default()).finish()
    }
}
