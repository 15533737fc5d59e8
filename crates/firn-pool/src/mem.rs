//! The simulated twin of the network: [`MemPool`] has memcached nodes in memory, a virtual clock
//! and faults. All of it depends on the seed only, as long as one thread uses it.
//!
//! Time passes when somebody waits: a poll takes a microsecond, and a sleep ends when bytes arrive
//! or at the deadline.

mod faults;
mod node;

use crate::link::{Clock, Link, Socket};
use crate::node_list::Address;
use crate::random::SplitMix64;
use node::MemNode;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;

pub use faults::Faults;

/// Nodes, connections and the clock.
pub struct MemPool(Arc<Mutex<Network>>);

struct Network {
    now_us: u64,
    random: SplitMix64,
    nodes: BTreeMap<String, MemNode>,
    connections: BTreeMap<u64, MemConnection>,
    next_connection: u64,
}

struct MemConnection {
    node: String,
    /// Bytes of commands that the node has not executed yet.
    input: Vec<u8>,
    /// Answers that are on their way, with the time of arrival.
    output: VecDeque<(u64, Vec<u8>)>,
    reset: bool,
}

impl MemPool {
    /// A network without nodes.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Network {
            now_us: 1_000_000,
            random: SplitMix64::new(seed),
            nodes: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
        })))
    }

    /// Starts an empty node, or one that was killed.
    pub fn start(&self, address: &str, limit_bytes: u64) {
        self.0
            .lock()
            .nodes
            .insert(address.into(), MemNode::new(limit_bytes));
    }

    /// Kills a node: its connections are reset, its values are gone, new connections are refused.
    pub fn kill(&self, address: &str) {
        let mut network = self.0.lock();
        network.nodes.remove(address);
        for connection in network.connections.values_mut() {
            if connection.node == address {
                connection.reset = true;
                connection.output.clear();
            }
        }
    }

    /// Stops a node as SIGSTOP does: connections stay, nothing is answered.
    pub fn stop(&self, address: &str) {
        self.0.lock().with_node(address, |node| node.stopped = true);
    }

    /// Lets a stopped node go on. It executes what has come meanwhile.
    pub fn resume(&self, address: &str) {
        let mut network = self.0.lock();
        network.with_node(address, |node| node.stopped = false);
        let connections: Vec<u64> = network.connections.keys().copied().collect();
        for id in connections {
            if network.connections[&id].node == address {
                network.execute(id);
            }
        }
    }

    /// Sets the faults of a node.
    pub fn set_faults(&self, address: &str, faults: Faults) {
        self.0
            .lock()
            .with_node(address, |node| node.faults = faults);
    }

    /// Removes all values of a node.
    pub fn evict_all(&self, address: &str) {
        self.0.lock().with_node(address, MemNode::evict_all);
    }

    /// The number of values of a node.
    pub fn items(&self, address: &str) -> usize {
        self.0.lock().nodes.get(address).map_or(0, MemNode::len)
    }

    /// The number of gets that a node has executed.
    pub fn gets(&self, address: &str) -> u64 {
        self.0.lock().nodes.get(address).map_or(0, |node| node.gets)
    }

    /// Lets time pass.
    pub fn advance(&self, us: u64) {
        self.0.lock().now_us += us;
    }
}

impl Clock for MemPool {
    fn now_us(&self) -> u64 {
        self.0.lock().now_us
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut network = self.0.lock();
        bytes.fill_with(|| network.random.draw() as u8);
        Ok(())
    }
}

impl Link for MemPool {
    fn connect(&self, address: &Address, _deadline_us: u64) -> io::Result<Box<dyn Socket>> {
        let mut network = self.0.lock();
        let node = address.to_string();
        network.now_us += 50;
        if !network.nodes.contains_key(&node) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let id = network.next_connection;
        network.next_connection += 1;
        let connection = MemConnection {
            node,
            input: Vec::new(),
            output: VecDeque::new(),
            reset: false,
        };
        network.connections.insert(id, connection);
        Ok(Box::new(MemSocket {
            network: self.0.clone(),
            id,
        }))
    }
}

impl Network {
    fn with_node(&mut self, address: &str, change: impl FnOnce(&mut MemNode)) {
        if let Some(node) = self.nodes.get_mut(address) {
            change(node);
        }
    }

    /// Lets the node of a connection execute what has come.
    fn execute(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&connection.node) else {
            return;
        };
        if node.stopped || connection.reset {
            return;
        }
        let answer = node.execute(&mut connection.input, self.now_us, &mut self.random);
        if answer.bytes.is_empty() {
            return;
        }
        let earliest = connection.output.back().map_or(0, |last| last.0);
        let at = (self.now_us + answer.delay_us).max(earliest);
        connection.output.push_back((at, answer.bytes));
        connection.reset |= answer.resets;
    }
}

struct MemSocket {
    network: Arc<Mutex<Network>>,
    id: u64,
}

impl Socket for MemSocket {
    fn write_all(&mut self, bytes: &[u8], _deadline_us: u64) -> io::Result<()> {
        let mut network = self.network.lock();
        network.now_us += 1;
        let connection = network.connections.get_mut(&self.id);
        let connection = connection.filter(|connection| !connection.reset);
        let connection = connection.ok_or(ErrorKind::BrokenPipe)?;
        connection.input.extend_from_slice(bytes);
        network.execute(self.id);
        Ok(())
    }

    fn try_read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut network = self.network.lock();
        let now_us = network.now_us;
        network.now_us += 1;
        let connection = network
            .connections
            .get_mut(&self.id)
            .ok_or(ErrorKind::NotConnected)?;
        match connection.output.front_mut() {
            Some((at, bytes)) if *at <= now_us => {
                let count = into.len().min(bytes.len());
                into[..count].copy_from_slice(&bytes[..count]);
                bytes.drain(..count);
                if bytes.is_empty() {
                    connection.output.pop_front();
                }
                Ok(Some(count))
            }
            None if connection.reset => Err(ErrorKind::ConnectionReset.into()),
            _ => Ok(None),
        }
    }

    fn wait_readable(&mut self, deadline_us: u64) -> io::Result<bool> {
        let mut network = self.network.lock();
        let connection = network
            .connections
            .get(&self.id)
            .ok_or(ErrorKind::NotConnected)?;
        let arrival = match connection.output.front() {
            Some((at, _)) => *at,
            None if connection.reset => network.now_us,
            None => u64::MAX,
        };
        network.now_us = network.now_us.max(arrival.min(deadline_us));
        Ok(arrival <= network.now_us)
    }
}

impl Drop for MemSocket {
    fn drop(&mut self) {
        self.network.lock().connections.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
