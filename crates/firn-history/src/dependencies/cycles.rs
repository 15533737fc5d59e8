//! The search for cycles, their names and their descriptions.

use super::{Builder, Instant};
use crate::graph::{Cycle, EdgeKind};
use crate::history::IsolationLevel;
use crate::verdict::Finding;
use std::collections::HashSet;

impl Builder<'_> {
    /// Reports the cycles of instants as findings. Then judges the cycles of transactions that
    /// share no transaction with a finding: a cycle of SERIALIZABLE transactions is a finding too,
    /// other cycles are counted.
    pub(super) fn search(&mut self) {
        use EdgeKind::{Gap, Rw, RwRange, Session, Time, Wr, Ww};
        // Search first for cycles of only a few kinds of edges, and allow further kinds step by
        // step. So a cycle is found with the fewest kinds that it needs, and gets the name of the
        // worst anomaly that it proves.
        let stages: [&[EdgeKind]; 6] = [
            &[Session, Ww],
            &[Session, Ww, Wr],
            &[Session, Ww, Wr, Rw],
            &[Session, Ww, Wr, Rw, RwRange],
            &[Session, Time, Ww, Wr],
            &[Session, Time, Ww, Wr, Rw, RwRange],
        ];
        let mut reported = HashSet::new();
        for kinds in stages {
            for cycle in self.graph.cycles(kinds) {
                if cycle.iter().any(|(node, _)| reported.contains(node)) {
                    continue;
                }
                reported.extend(cycle.iter().map(|(node, _)| *node));
                let Finding { name, txns, story } = self.finding_of(&cycle);
                self.verdict.find(name, &txns, story);
            }
        }
        for cycle in self
            .graph
            .cycles(&[Session, Time, Ww, Wr, Rw, RwRange, Gap])
        {
            if cycle.iter().any(|(node, _)| reported.contains(node)) {
                continue;
            }
            let finding = self.finding_of(&cycle);
            match self.history.setup.gap_locks {
                true => self
                    .verdict
                    .find(finding.name, &finding.txns, finding.story),
                false => self.verdict.gaps.push(finding),
            }
        }
        for cycle in self.transactions.cycles(&[Ww, Wr, Rw, RwRange]) {
            let txns: HashSet<u64> = cycle
                .iter()
                .map(|(t, _)| self.history.txns[*t].id)
                .collect();
            let mut found = self.verdict.findings.iter().flat_map(|f| &f.txns);
            if found.any(|id| txns.contains(id)) {
                continue;
            }
            let name = name_of(&cycle, false);
            let level = |t: usize| self.history.txns[t].level;
            if cycle
                .iter()
                .all(|(t, _)| level(*t) == IsolationLevel::Serializable)
            {
                let mut txns: Vec<u64> = txns.into_iter().collect();
                txns.sort_unstable();
                let story = self.tell_transactions(&cycle);
                self.verdict
                    .find(format!("not serializable: {name}"), &txns, story);
            } else {
                *self.verdict.permitted.entry(name).or_default() += 1;
            }
        }
    }

    /// The dependencies of a cycle of transactions in words.
    fn tell_transactions(&self, cycle: &Cycle) -> String {
        let steps = cycle.iter().map(|&(t, edge)| {
            let id = |t: usize| self.history.txns[t].id;
            let kind = match edge.kind {
                EdgeKind::Ww => "ww",
                EdgeKind::Wr => "wr",
                EdgeKind::Rw => "rw",
                _ => "missed",
            };
            format!("T{} -{kind} row {}-> T{}", id(t), edge.row, id(edge.to))
        });
        steps.collect::<Vec<_>>().join("; ")
    }

    fn finding_of(&self, cycle: &Cycle) -> Finding {
        let mut story = Vec::new();
        let mut txns = Vec::new();
        let (mut lost_update, mut clock, mut within) = (false, false, None);
        for &(node, edge) in cycle {
            let who = |node: usize| match self.instants[node] {
                Instant::End(t) => (Some(t), format!("end of T{}", self.history.txns[t].id)),
                Instant::In(t, o) => (Some(t), format!("T{}.{o}", self.history.txns[t].id)),
                Instant::Clock => (None, "the clock".into()),
            };
            let ((from, from_name), (to, to_name)) = (who(node), who(edge.to));
            txns.extend(from.map(|t| self.history.txns[t].id));
            clock |= edge.kind == EdgeKind::Time;
            if let (Some(from), Some(to), EdgeKind::Rw) = (from, to, edge.kind) {
                let writers = self.chains.rows[&edge.row]
                    .versions
                    .iter()
                    .map(|v| v.writer);
                let mut after = writers.skip_while(|&writer| writer != to);
                lost_update |= after.any(|writer| writer == from);
            }
            let kind = match edge.kind {
                EdgeKind::Session => format!("then {to_name}"),
                EdgeKind::Time if from.is_none() && to.is_none() => continue,
                EdgeKind::Time if to.is_none() => format!("{from_name} was answered"),
                EdgeKind::Time => format!("{to_name} was asked for"),
                EdgeKind::Ww => format!("{from_name} -ww row {}-> {to_name}", edge.row),
                EdgeKind::Wr => format!("{from_name} -wr row {}-> {to_name}", edge.row),
                EdgeKind::Rw => format!("{from_name} -rw row {}-> {to_name}", edge.row),
                EdgeKind::RwRange => format!("{from_name} -missed row {}-> {to_name}", edge.row),
                EdgeKind::Gap => format!("{from_name} -gap of row {}-> {to_name}", edge.row),
            };
            // Describe consecutive steps through one session as one.
            if edge.kind == EdgeKind::Session && within == Some(EdgeKind::Session) {
                story.pop();
            }
            story.push(kind);
            within = Some(edge.kind);
        }
        txns.sort_unstable();
        txns.dedup();
        let name = match lost_update {
            true => "lost update".into(),
            false => name_of(cycle, clock),
        };
        Finding {
            name,
            txns,
            story: story.join("; "),
        }
    }
}

fn name_of(cycle: &Cycle, clock: bool) -> String {
    let count = |kind: EdgeKind| cycle.iter().filter(|(_, edge)| edge.kind == kind).count();
    let ranges = count(EdgeKind::RwRange) + count(EdgeKind::Gap);
    let reads = count(EdgeKind::Rw) + ranges;
    let name = match (reads, count(EdgeKind::Wr)) {
        (0, 0) => "G0",
        (0, _) => "G1c",
        (1, _) if ranges == 1 => "phantom (G-single)",
        (1, _) => "G-single",
        _ if ranges > 0 => "phantom (G2)",
        _ => "G2-item",
    };
    format!("{name}{}", if clock { ", by the clock" } else { "" })
}
