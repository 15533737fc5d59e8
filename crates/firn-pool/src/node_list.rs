//! The list of nodes as a user writes it: `cache1:11211*2, [fd00::7]:11211, unix:/run/pool.sock`.

use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Most nodes of a list.
pub const NODES_MAX: usize = 64;

const WEIGHT_MAX: u32 = 1_000_000;

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Host name or IP address, without brackets, and port.
    Tcp(String, u16),
    /// The same, by TLS.
    Tls(String, u16),
    /// Path of a socket.
    Unix(String),
}

/// A node of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Where it listens.
    pub address: Address,
    /// Share of the names, relative to the other nodes.
    pub weight: u32,
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(out, "{host}:{port}"),
            Address::Tls(host, port) => {
                let plain = Address::Tcp(host.clone(), *port);
                write!(out, "tls:{plain}")
            }
            Address::Unix(path) => write!(out, "unix:{path}"),
        }
    }
}

impl Address {
    /// The seed by which rendezvous hashing knows the node.
    pub fn seed(&self) -> u64 {
        xxh3_64(self.to_string().as_bytes())
    }
}

/// Parses a list: nodes apart by commas, each `host:port`, `[IPv6]:port`, one of these behind
/// `tls:`, or `unix:/path`, and `*weight` behind it if it is not 1. An empty list has no nodes.
///
/// # Errors
/// A sentence for the user that names the faulty part.
pub fn parse_nodes(list: &str) -> Result<Vec<NodeSpec>, String> {
    if list.trim().is_empty() {
        return Ok(Vec::new());
    }
    let nodes = list
        .split(',')
        .map(|part| node(part.trim()))
        .collect::<Result<Vec<_>, _>>()?;
    if nodes.len() > NODES_MAX {
        return Err(format!("{} nodes are more than {NODES_MAX}", nodes.len()));
    }
    for (at, node) in nodes.iter().enumerate() {
        if nodes[..at]
            .iter()
            .any(|other| other.address == node.address)
        {
            return Err(format!("node '{}' is listed twice", node.address));
        }
    }
    Ok(nodes)
}

fn node(text: &str) -> Result<NodeSpec, String> {
    if text.is_empty() {
        return Err("a node is empty: two commas, or one at an end".into());
    }
    let (address, weight) = match text.rsplit_once('*') {
        Some((address, weight)) => (address.trim_end(), parse_weight(text, weight.trim_start())?),
        None => (text, 1),
    };
    let address = match address.split_once(':') {
        Some(("unix", path)) => unix(text, path)?,
        // `tls:11211` is a host of that name.
        Some(("tls", rest)) if rest.contains(':') => {
            let (host, port) = tcp(text, rest)?;
            Address::Tls(host, port)
        }
        _ => {
            let (host, port) = tcp(text, address)?;
            Address::Tcp(host, port)
        }
    };
    Ok(NodeSpec { address, weight })
}

fn parse_weight(text: &str, weight: &str) -> Result<u32, String> {
    let parsed = weight
        .parse()
        .ok()
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    parsed.ok_or_else(|| {
        format!("node '{text}': the weight '{weight}' is no whole number from 1 to {WEIGHT_MAX}")
    })
}

fn unix(text: &str, path: &str) -> Result<Address, String> {
    // The limit of the operating system for the path of a socket.
    if path.starts_with('/') && path.len() < 108 && !path.contains('\0') {
        return Ok(Address::Unix(path.into()));
    }
    Err(format!(
        "node '{text}': a socket is 'unix:' and an absolute path of at most 107 bytes"
    ))
}

fn tcp(text: &str, address: &str) -> Result<(String, u16), String> {
    let (host, port) = address
        .rsplit_once(':')
        .ok_or_else(|| format!("node '{text}': the port is missing (host:port)"))?;
    let port = port
        .parse()
        .ok()
        .filter(|port| *port > 0 && !address.ends_with(' '));
    let port =
        port.ok_or_else(|| format!("node '{text}': the port is no number from 1 to 65535"))?;
    if let Some(inside) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let parsed: Result<std::net::Ipv6Addr, _> = inside.parse();
        let parsed = parsed.map_err(|_| format!("node '{text}': '{inside}' is no IPv6 address"))?;
        return Ok((parsed.to_string(), port));
    }
    if host.contains(':') {
        return Err(format!(
            "node '{text}': an IPv6 address stands in brackets ([{host}]:{port})"
        ));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || !host.chars().all(fits) {
        return Err(format!("node '{text}': '{host}' is no host name"));
    }
    Ok((host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests;
