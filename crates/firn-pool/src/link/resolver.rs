//! The addresses of hosts, found by threads of their own.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

/// Addresses are looked up again once they are so old, and somebody connects.
const FRESH_US: u64 = 10_000_000;

/// Finds addresses without waiting for them.
///
/// The system's call has no deadline: it takes as long as a name server that is silent lets it, up
/// to half a minute. So a thread makes it, at most one for each host, which nobody waits for. Those
/// who connect meanwhile get the addresses that were found before, and none the first time.
#[derive(Default)]
pub(super) struct Resolver(Arc<Mutex<HashMap<String, Host>>>);

#[derive(Default)]
struct Host {
    addresses: Vec<IpAddr>,
    /// When they were asked for.
    asked_us: Option<u64>,
    /// A thread is looking for them.
    is_asking: bool,
    /// One has looked for them.
    is_answered: bool,
}

impl Resolver {
    /// The addresses of a host that are known at the time `now_us`; `None` before the first answer.
    pub(super) fn addresses(&self, host: &str, now_us: u64) -> Option<Vec<IpAddr>> {
        self.addresses_by(host, now_us, |host| {
            let found = (host, 0).to_socket_addrs().into_iter().flatten();
            found.map(|address| address.ip()).collect()
        })
    }

    fn addresses_by(
        &self,
        host: &str,
        now_us: u64,
        look_up: impl FnOnce(&str) -> Vec<IpAddr> + Send + 'static,
    ) -> Option<Vec<IpAddr>> {
        if let Ok(address) = host.parse() {
            return Some(vec![address]);
        }
        let mut hosts = self.0.lock();
        let known = hosts.entry(host.to_owned()).or_default();
        let is_old = |asked_us: u64| now_us.saturating_sub(asked_us) > FRESH_US;
        let is_wanted = known.addresses.is_empty() || known.asked_us.is_none_or(is_old);
        if is_wanted && !known.is_asking {
            let (all, name) = (Arc::clone(&self.0), host.to_owned());
            let thread = std::thread::Builder::new().name("firn-pool-dns".to_owned());
            let spawned = thread.spawn(move || {
                let found = look_up(&name);
                let mut hosts = all.lock();
                let known = hosts.entry(name).or_default();
                (known.is_asking, known.is_answered) = (false, true);
                // Old addresses are better than none while the name server is away.
                if !found.is_empty() {
                    known.addresses = found;
                }
            });
            known.is_asking = spawned.is_ok();
            known.asked_us = Some(now_us);
        }
        known.is_answered.then(|| known.addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Asks until the answer is this one.
    fn wait_for(resolver: &Resolver, wanted: &[IpAddr]) {
        let asks = || resolver.addresses_by("cache", 0, |_| Vec::new());
        for _ in 0..2000 {
            if asks().as_deref() == Some(wanted) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{:?}", asks());
    }

    #[test]
    fn nobody_waits_for_a_name_server_and_one_thread_asks_it() {
        let resolver = Resolver::default();
        let [first, second]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let (answer, wait) = mpsc::channel();
        let slow = move |_: &str| wait.recv().into_iter().collect();
        assert_eq!(resolver.addresses_by("cache", 0, slow), None);
        // While it is silent, no second thread asks.
        let never = |_: &str| unreachable!("asked twice");
        assert_eq!(resolver.addresses_by("cache", 2 * FRESH_US, never), None);
        answer.send(first).unwrap();
        wait_for(&resolver, &[first]);
        // Later it is asked again; meanwhile the old addresses serve.
        let other = move |_: &str| vec![second];
        let now_us = 3 * FRESH_US;
        let known = |address| Some(vec![address]);
        assert_eq!(resolver.addresses_by("cache", now_us, other), known(first));
        wait_for(&resolver, &[second]);
        // A name server that is away takes no address away.
        let gone = |_: &str| Vec::new();
        let now_us = 5 * FRESH_US;
        assert_eq!(resolver.addresses_by("cache", now_us, gone), known(second));
        wait_for(&resolver, &[second]);
    }

    #[test]
    fn numbers_need_no_name_server() {
        let resolver = Resolver::default();
        let never = |_: &str| unreachable!("asked for a number");
        for host in ["127.0.0.1", "::1"] {
            let address: IpAddr = host.parse().unwrap();
            assert_eq!(resolver.addresses_by(host, 0, never), Some(vec![address]));
        }
        assert!(resolver.0.lock().is_empty());
    }

    #[test]
    fn a_name_without_an_address_is_told_from_one_that_is_being_resolved() {
        let resolver = Resolver::default();
        let nothing = |_: &str| Vec::new();
        assert_eq!(resolver.addresses_by("cache", 0, nothing), None);
        wait_for(&resolver, &[]);
    }
}
