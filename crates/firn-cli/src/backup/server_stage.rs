//! The statements that a backup runs on the server: they enter a backup stage, or read positions.
//! The end of the session also ends a backup stage that the session has entered.

use super::backup_format::Position;
use crate::server::Server;
use firn::base::{Error, ErrorKind, Result};

impl Server {
    /// Goes to a stage of `BACKUP STAGE`.
    ///
    /// # Errors
    /// `Busy` if something held it up for longer than `lock_wait_timeout`.
    pub fn backup_stage(&mut self, stage: &str) -> Result<()> {
        let entered = self.ask(&format!("BACKUP STAGE {stage}")).map(drop);
        entered.map_err(|error| match error.to_string().contains("ERROR 1205") {
            true => {
                let what =
                    "another backup, a long statement or ALTER TABLE goes on; see --lock-wait";
                Error::new(ErrorKind::Busy, format!("{error}: {what}"))
            }
            false => error,
        })
    }

    /// The positions of the server's binary logs.
    pub fn position(&mut self) -> Result<Position> {
        let mut position = Position::default();
        if let Some([file, pos, ..]) = self.ask("SHOW MASTER STATUS")?.first().map(Vec::as_slice) {
            position.binlog_file.clone_from(file);
            position.binlog_pos = pos.parse().unwrap_or(0);
        }
        position.gtid_binlog_pos = self.ask_one("SELECT @@global.gtid_binlog_pos")?;
        position.gtid_slave_pos = self.ask_one("SELECT @@global.gtid_slave_pos")?;
        // Relay_Master_Log_File and Exec_Master_Log_Pos.
        if let Some(row) = self.ask("SHOW SLAVE STATUS")?.first()
            && let (Some(file), Some(pos)) = (row.get(9), row.get(21))
        {
            position.source_file.clone_from(file);
            position.source_pos = pos.parse().unwrap_or(0);
        }
        Ok(position)
    }
}
