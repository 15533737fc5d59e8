//! Checks the log: replays it as recovery does, and also looks behind the first damage.

use super::findings::Findings;
use firn::base::Result;
use firn::db::{ReadOnlyDb, ReadOnlyLog, ReadOnlyTree};
use firn::env::BLOCK;
use firn::wal::{SegmentId, SegmentPiece, dump_segment, parse_segment_name, segment_name};

/// Replays the log in memory. Returns the replayed log and the number of segments. Instead of the
/// log it returns `None` if the log cannot be replayed or if there is no tree.
pub fn check(
    db: &ReadOnlyDb,
    tree: Option<&ReadOnlyTree>,
    findings: &mut Findings,
) -> Result<(Option<ReadOnlyLog>, u64)> {
    let names = db.env().list_dir(db.dir())?;
    let mut segments: Vec<SegmentId> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    segments.sort_unstable();
    let log = tree.map(|tree| db.log(tree));
    match log {
        Some(Ok(log)) => {
            if log.end.torn_tail {
                let what = "the log ends in a torn group, as a crash leaves it; it is dropped at the next start. \
                            After a clean shutdown it is damage";
                let name = segment_name(log.end.last_segment);
                findings.warning(&name, Some(log.end.end_offset), what);
            }
            if !log.prepared.is_empty() {
                let what = format!(
                    "{} prepared transactions wait for XA COMMIT or XA ROLLBACK",
                    log.prepared.len()
                );
                findings.warning("log", None, what);
            }
            return Ok((Some(log), segments.len() as u64));
        }
        Some(Err(error)) => findings.error(&error),
        None => {}
    }
    let first = tree.map_or(0, |tree| tree.state.log_number);
    for &segment in segments.iter().filter(|id| **id >= first) {
        gaps(db, segment, findings);
    }
    Ok((None, segments.len() as u64))
}

/// Reports gaps between the intact groups of a segment.
fn gaps(db: &ReadOnlyDb, segment: SegmentId, findings: &mut Findings) {
    let name = segment_name(segment);
    let mut pending = Vec::new();
    let surveyed = dump_segment(&**db.env(), db.dir(), segment, &mut |piece| match piece {
        // A group may leave the rest of its block empty.
        SegmentPiece::Gap { from, to, .. } if to - from < BLOCK as u64 => {}
        SegmentPiece::Gap { from, to, .. } => pending.push((from, to)),
        SegmentPiece::Group { .. } => {
            for (from, to) in pending.drain(..) {
                let what = format!("{} bytes before an intact group hold none", to - from);
                findings.damage(&name, Some(from), what);
            }
        }
    });
    match surveyed {
        Ok((Some(_), _)) => {}
        Ok((None, _)) => {
            findings.damage(&name, Some(0), "the header is damaged or was never written")
        }
        Err(error) => findings.error(&error),
    }
}
