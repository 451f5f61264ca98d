// SPDX-License-Identifier: Apache-2.0
//! What can go wrong.

use crate::sys;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_int;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a program may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The call or request is wrong or refused; the same again fails again.
    Request,
    /// A link, connection or peer failed; another path or a later try may work.
    Path,
    /// The engine or the host is at fault.
    Fatal,
}

macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $class:ident;)+) => {
        /// An error: its kind as the variant, and in each the text that says what exactly was wrong,
        /// with names, numbers and the remedy.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Error {
            $($(#[doc = $doc])+ $name(String),)+
            /// A number that this version of the crate does not know.
            Other(i32, String),
        }

        /// The kind of an [`Error`], without its text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $doc])+ $name,)+
            /// A number that this version of the crate does not know.
            Other(i32),
        }

        impl Error {
            pub(crate) fn new(kind: ErrorKind, text: String) -> Error {
                match kind {
                    $(ErrorKind::$name => Error::$name(text),)+
                    ErrorKind::Other(code) => Error::Other(code, text),
                }
            }

            /// The kind, which can be copied and compared.
            pub fn kind(&self) -> ErrorKind {
                match self {
                    $(Error::$name(_) => ErrorKind::$name,)+
                    Error::Other(code, _) => ErrorKind::Other(*code),
                }
            }

            /// What exactly was wrong.
            pub fn message(&self) -> &str {
                match self {
                    $(Error::$name(text) => text,)+
                    Error::Other(_, text) => text,
                }
            }
        }

        impl ErrorKind {
            pub(crate) fn of(code: c_int) -> ErrorKind {
                match code {
                    $($code => ErrorKind::$name,)+
                    other => ErrorKind::Other(other),
                }
            }

            /// The number, as the C interface has it; negative.
            pub fn code(self) -> i32 {
                match self {
                    $(ErrorKind::$name => $code,)+
                    ErrorKind::Other(code) => code,
                }
            }

            /// What a program may do about it.
            pub fn class(self) -> ErrorClass {
                match self {
                    $(ErrorKind::$name => ErrorClass::$class,)+
                    ErrorKind::Other(_) => ErrorClass::Fatal,
                }
            }

            #[cfg(test)]
            pub(crate) fn all() -> Vec<ErrorKind> {
                vec![$(ErrorKind::$name),+]
            }
        }
    };
}

errors! {
    /// Invalid argument.
    Invalid = -1, Request;
    /// Too many requests for this batch.
    TooMany = -2, Request;
    /// The address range is not registered.
    NotRegistered = -3, Request;
    /// Still in use by unfinished transfers.
    Busy = -4, Request;
    /// Device not found.
    NoDevice = -6, Fatal;
    /// The address range overlaps a registered one.
    Overlap = -7, Request;
    /// A host name cannot be resolved.
    Dns = -101, Path;
    /// A socket operation failed.
    Socket = -102, Path;
    /// Malformed JSON.
    Json = -103, Request;
    /// Rejected by the peer.
    Rejected = -104, Request;
    /// A metadata operation failed.
    Metadata = -200, Path;
    /// An endpoint operation failed.
    Endpoint = -201, Path;
    /// A device context failed.
    Context = -202, Fatal;
    /// A NUMA operation failed.
    Numa = -300, Fatal;
    /// The clock is unusable.
    Clock = -301, Fatal;
    /// Out of memory.
    Memory = -302, Fatal;
    /// Not implemented.
    NotImplemented = -303, Request;
    /// The deadline passed.
    Timeout = -400, Path;
    /// Cancelled.
    Canceled = -401, Request;
    /// The engine is closed, or this is a forked child of its process.
    Closed = -402, Request;
    /// Not found.
    NotFound = -403, Request;
    /// The peer broke the protocol.
    Protocol = -404, Path;
    /// The connection was lost during the transfer.
    Link = -405, Path;
    /// The peer cannot be reached.
    Peer = -406, Path;
    /// The target does not have this address range.
    Stale = -407, Request;
    /// The target does not allow this access.
    Access = -408, Request;
    /// Not supported by this build or transport.
    Unsupported = -409, Request;
    /// Too large for its channel.
    TooLarge = -410, Request;
    /// Exists already.
    Exists = -411, Request;
    /// A system call failed.
    System = -412, Fatal;
}

impl ErrorKind {
    /// The name of the C interface, "TE_ERR_TIMEOUT" for instance.
    pub fn name(self) -> &'static str {
        // SAFETY: takes any number; the result is a static string.
        unsafe { static_text(sys::te_errname(self.code())) }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: takes any number; the result is a static string.
        f.write_str(unsafe { static_text(sys::te_strerror(self.code())) })
    }
}

impl Error {
    /// The error of the call that has just returned `code` in this thread. The text is that thread's
    /// own and the next call may change it, so this comes at once.
    pub(crate) fn last(code: c_int) -> Error {
        let kind = ErrorKind::of(code);
        // SAFETY: never NULL, and valid until this thread's next call of the library.
        let text = unsafe { CStr::from_ptr(sys::te_errmsg()) };
        let text = text.to_string_lossy().into_owned();
        Error::new(kind, if text.is_empty() { kind.to_string() } else { text })
    }

    /// The number, as the C interface has it; negative.
    pub fn code(&self) -> i32 {
        self.kind().code()
    }

    /// What a program may do about it.
    pub fn class(&self) -> ErrorClass {
        self.kind().class()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.kind().name())
    }
}

impl std::error::Error for Error {}

/// What a call of the C interface says: 0 or more is well.
pub(crate) fn check(rc: c_int) -> Result<c_int> {
    if rc < 0 {
        return Err(Error::last(rc));
    }
    Ok(rc)
}

/// # Safety
/// `text` is a static string that ends in NUL.
pub(crate) unsafe fn static_text(text: *const std::os::raw::c_char) -> &'static str {
    // SAFETY: the caller says so.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().unwrap_or("unknown error")
}
