// SPDX-License-Identifier: Apache-2.0
//! The library's log lines. They are the process's, not an engine's.

use crate::sys;
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_void};
use std::panic;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Per piece of a request.
    Trace,
    /// Per connection.
    Debug,
    /// A few lines in an engine's life.
    Info,
    /// Something is worse than it should be.
    Warn,
    /// It cannot go on.
    Error,
    /// No line has it: as a limit it stands for silence.
    Off,
}

impl LogLevel {
    fn raw(self) -> c_int {
        match self {
            LogLevel::Trace => sys::TE_LOG_TRACE,
            LogLevel::Debug => sys::TE_LOG_DEBUG,
            LogLevel::Info => sys::TE_LOG_INFO,
            LogLevel::Warn => sys::TE_LOG_WARN,
            LogLevel::Error => sys::TE_LOG_ERROR,
            LogLevel::Off => sys::TE_LOG_OFF,
        }
    }

    fn of(raw: c_int) -> LogLevel {
        match raw {
            sys::TE_LOG_TRACE => LogLevel::Trace,
            sys::TE_LOG_DEBUG => LogLevel::Debug,
            sys::TE_LOG_INFO => LogLevel::Info,
            sys::TE_LOG_WARN => LogLevel::Warn,
            _ => LogLevel::Error,
        }
    }
}

/// Receives a line. Called from any thread; must not block for long and must not call this crate. A
/// panic in it is swallowed.
pub type LogSink = fn(LogLevel, &str);

/// The sink of now. The library may still call the way in of an earlier one.
static SINK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn receive(_arg: *mut c_void, level: c_int, line: *const c_char) {
    let sink = SINK.load(Ordering::Acquire);
    if sink.is_null() || line.is_null() {
        return;
    }
    // SAFETY: not NULL, so stored by set_log_sink() from a LogSink.
    let sink = unsafe { std::mem::transmute::<*mut (), LogSink>(sink) };
    // SAFETY: the library passes a string that lives during the call.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    if let Err(payload) = panic::catch_unwind(|| sink(LogLevel::of(level), &line)) {
        // Its destructor may panic in turn.
        std::mem::forget(payload);
    }
}

/// Sends log lines to a function, or with `None` back to where they go by default.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{set_log_level, set_log_sink, LogLevel};
///
/// set_log_level(LogLevel::Info);
/// set_log_sink(Some(|level, line| println!("{level:?} {line}")));
/// # Ok(())
/// # }
/// ```
pub fn set_log_sink(sink: Option<LogSink>) {
    let raw = sink.map_or(std::ptr::null_mut(), |f| f as *mut ());
    SINK.store(raw, Ordering::Release);
    let way_in = sink.map(|_| receive as sys::te_log_sink);
    // SAFETY: the function may be called from any thread and for ever.
    unsafe { sys::te_log_set_sink(way_in, std::ptr::null_mut()) };
}

/// Drops lines below this level.
pub fn set_log_level(level: LogLevel) {
    // SAFETY: a level of the interface.
    unsafe { sys::te_log_set_level(level.raw()) };
}

#[cfg(test)]
mod tests {
    use super::{set_log_level, set_log_sink, LogLevel};
    use crate::{Engine, Error};
    use std::sync::Mutex;

    static LINES: Mutex<Vec<(LogLevel, String)>> = Mutex::new(Vec::new());

    fn keep(level: LogLevel, line: &str) {
        LINES.lock().unwrap().push((level, line.to_string()));
    }

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("a panic of a sink stays with it");
        }
    }

    fn fail() {
        let refused = Engine::builder().option("MC_NO_SUCH_OPTION", "1").build();
        assert!(matches!(refused, Err(Error::NotFound(_))));
    }

    #[test]
    fn a_sink_gets_lines_until_it_is_taken_away() {
        set_log_sink(Some(keep));
        fail();
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        let told = |(level, line): &(LogLevel, String)| {
            *level >= LogLevel::Warn && line.contains("MC_NO_SUCH_OPTION")
        };
        assert!(lines.iter().any(told), "{lines:?}");

        set_log_level(LogLevel::Off);
        fail();
        assert!(LINES.lock().unwrap().is_empty());
        set_log_level(LogLevel::Warn);

        set_log_sink(Some(|_, _| std::panic::panic_any(PanicsAgain)));
        fail();
        set_log_sink(None);
        fail();
        assert!(LINES.lock().unwrap().is_empty());
    }
}
