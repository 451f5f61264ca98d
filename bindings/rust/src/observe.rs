// SPDX-License-Identifier: Apache-2.0
//! Looking at an engine.

use crate::error::Result;
use crate::sys;

macro_rules! stats {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Counters of an engine since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl From<sys::te_stats> for Stats {
            fn from(raw: sys::te_stats) -> Stats {
                Stats { $($name: raw.$name),+ }
            }
        }
    };
}

stats! {
    /// Requests submitted.
    requests_submitted;
    /// Of these, those that completed.
    requests_completed;
    /// And those that ended otherwise.
    requests_failed;
    /// Bytes that completed requests read.
    bytes_read;
    /// Bytes that completed requests wrote.
    bytes_written;
    /// Requests served for peers, but for those of this host, which help themselves.
    served_requests;
    /// Bytes that they read.
    served_bytes_out;
    /// Bytes that they wrote.
    served_bytes_in;
    /// Requests of peers that were refused.
    served_rejected;
    /// Pieces of requests that were tried again.
    retries;
    /// Connections made anew.
    reconnects;
    /// Descriptors of peers fetched again.
    refreshes;
    /// Connections open now, both roles.
    connections;
    /// Regions registered now.
    regions;
    /// Segments open now.
    segments_open;
    /// Messages sent.
    notifications_sent;
    /// Messages received.
    notifications_received;
    /// Times that the metadata server could not be asked.
    metadata_failures;
    /// 1 since the last one of these, until it answers again.
    metadata_down;
}

/// How a request would travel; from [`Engine::explain`].
///
/// [`Engine::explain`]: crate::Engine::explain
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use transfer_engine::{Access, Engine, Request};
///
/// let engine = Engine::builder().name("127.0.0.1").build()?;
/// let region = engine.register(vec![0; 200], Access::ReadWrite)?;
/// let here = engine.local_segment();
/// let request = Request::write(&region, 0..100, &here, region.addr() + 100);
/// let why = engine.explain(&request)?;
/// assert!(why.text.contains("local"), "{}", why.text);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Explanation {
    /// For people: which transport would carry it, and why each other one would not.
    pub text: String,
    /// What a submit would say.
    pub outcome: Result<()>,
}
