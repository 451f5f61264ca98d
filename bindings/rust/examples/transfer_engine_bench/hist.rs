// SPDX-License-Identifier: Apache-2.0
//! A histogram of times, exact to 1/64.

const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;

/// Times in nanoseconds.
#[derive(Clone, Default)]
pub struct Hist {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
    buckets: Vec<u64>,
}

fn bucket_of(ns: u64) -> usize {
    if ns < SUB {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - SUB_BITS;
    (u64::from(shift + 1) << SUB_BITS) as usize + ((ns >> shift) & (SUB - 1)) as usize
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    ((SUB + (bucket & (SUB - 1))) << shift) + ((1 << shift) >> 1)
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Hist {
    pub fn add(&mut self, ns: u64, times: u64) {
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += times;
        self.sum += ns * times;
        let bucket = bucket_of(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += times;
    }

    pub fn merge(&mut self, from: &Hist) {
        if from.count == 0 {
            return;
        }
        self.min = if self.count == 0 { from.min } else { self.min.min(from.min) };
        self.max = self.max.max(from.max);
        self.count += from.count;
        self.sum += from.sum;
        if self.buckets.len() < from.buckets.len() {
            self.buckets.resize(from.buckets.len(), 0);
        }
        for (into, n) in self.buckets.iter_mut().zip(&from.buckets) {
            *into += n;
        }
    }

    fn quantile_us(&self, share: f64) -> f64 {
        let want = share * self.count as f64;
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen > 0 && seen as f64 >= want {
                return microseconds(value_of(bucket).clamp(self.min, self.max));
            }
        }
        0.0
    }

    fn mean_us(&self) -> f64 {
        match self.count {
            0 => 0.0,
            n => microseconds(self.sum) / n as f64,
        }
    }

    pub fn print(&self, what: &str) {
        println!(
            "{what}: avg {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} us",
            self.mean_us(),
            self.quantile_us(0.5),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            microseconds(self.max)
        );
    }
}
