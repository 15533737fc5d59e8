//! A small table with random columns, rows and indexes.

use super::kit::*;
use crate::keycode::*;
use rand::{Rng, rngs::StdRng, seq::SliceRandom};

pub struct Table {
    /// One ascending key part with the whole value, for each column.
    pub columns: Vec<KeyPart>,
    pub record_len: u32,
}

fn random_column(rng: &mut StdRng) -> KeyPart {
    let varchar = PartSource::VarChar {
        len_bytes: rng.random_range(1..=2),
    };
    match rng.random_range(0..7) {
        0 => part(
            PartKind::Int {
                signed: rng.random(),
            },
            PartSource::Fixed,
            4,
        ),
        1 => part(
            PartKind::Float,
            PartSource::Fixed,
            [4, 8][rng.random_range(0..2)],
        ),
        2 => part(PartKind::Fixed, PartSource::Fixed, rng.random_range(1..6)),
        3 => part(PartKind::VarBytes, varchar, 9),
        kind => {
            let mut rules = random_rules(rng);
            if kind == 4 {
                // A collation whose weights give the text back.
                rules = Rules {
                    weight_len: 1,
                    levels: 1,
                    form: TextForm::Bytes,
                    simple: false,
                    char_filled: false,
                    ..rules
                };
            }
            let collation = if kind == 4 {
                identity(&rules)
            } else {
                collation(&rules)
            };
            let source = [varchar, PartSource::Char { chars: 9 }][rng.random_range(0..2)];
            part(PartKind::Text(collation), source, 9)
        }
    }
}

pub fn random_table(rng: &mut StdRng) -> Table {
    let mut offset = 1;
    let mut bit = 0;
    let mut columns = Vec::new();
    for i in 0..rng.random_range(2..6) {
        let mut column = random_column(rng);
        column.column = i;
        column.offset = offset;
        offset += column.len + 4;
        // The first two columns are the primary key, so they must be NOT NULL.
        if i >= 2 && rng.random_bool(0.4) {
            bit += 1;
            column.null = Some(NullBit {
                offset: 0,
                mask: 1 << bit,
            });
        }
        columns.push(column);
    }
    Table {
        columns,
        record_len: offset,
    }
}

impl Table {
    pub fn random_record(&self, rng: &mut StdRng) -> Vec<u8> {
        let mut record: Vec<u8> = (0..self.record_len).map(|_| rng.random()).collect();
        for column in &self.columns {
            if let Some(null) = column.null {
                null.set(&mut record, rng.random_bool(0.3));
            }
            let at = column.offset as usize;
            let field = &mut record[at..];
            match (&column.kind, column.source) {
                (PartKind::Float, _) => {
                    let value: f64 = [0.0, -0.0, 1.5, -1e9][rng.random_range(0..4)];
                    if column.len == 4 {
                        field[..4].copy_from_slice(&(value as f32).to_le_bytes());
                    } else {
                        field[..8].copy_from_slice(&value.to_le_bytes());
                    }
                }
                (_, PartSource::Char { .. }) => {
                    let text = random_text(rng, 9);
                    field[..9].fill(b' ');
                    field[..text.len()].copy_from_slice(&text);
                }
                (_, PartSource::VarChar { len_bytes }) => {
                    let text = random_text(rng, 9);
                    let n = usize::from(len_bytes);
                    field[..n].copy_from_slice(&text.len().to_le_bytes()[..n]);
                    field[n..n + text.len()].copy_from_slice(&text);
                }
                _ => {}
            }
        }
        record
    }

    /// A key on these columns in random order. Some parts are descending; if `prefixes` is set,
    /// some are prefix parts.
    pub fn random_key(&self, rng: &mut StdRng, columns: &[usize], prefixes: bool) -> KeyCodec {
        let mut columns = columns.to_vec();
        columns.shuffle(rng);
        columns.truncate(rng.random_range(1..=columns.len()));
        let parts = columns.iter().map(|&i| {
            let mut part = self.columns[i].clone();
            part.desc = rng.random_bool(0.3);
            let variable = matches!(part.kind, PartKind::VarBytes | PartKind::Text(_));
            if prefixes && variable && rng.random_bool(0.3) {
                part.prefix = Some(3);
                part.image_len = 3;
            }
            part
        });
        KeyCodec::new(self.record_len, parts.collect()).unwrap()
    }

    pub fn random_index(&self, rng: &mut StdRng) -> IndexCodec {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let primary = self.random_key(rng, &[0, 1], false);
        let declared = self.random_key(rng, &all, true);
        IndexCodec::secondary(self.record_len, declared, Some(primary))
    }
}

/// The value of a column as SQL sees it; `None` is NULL.
pub fn value_of(column: &KeyPart, record: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the table has no blob columns.
    unsafe { column.value(record) }.unwrap().map(<[u8]>::to_vec)
}
