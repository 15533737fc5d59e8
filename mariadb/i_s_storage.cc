/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* FIRN_INDEXES, FIRN_FILES, FIRN_COMPACTIONS, FIRN_IO, FIRN_STALLS, FIRN_MEMORY. */

#include "i_s.h"
#include "schema_table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::Datetime;
using Show::ULonglong;
using Show::Varchar;

constexpr uint kKeyChars = 1024;

/* Columns of FIRN_INDEXES, in the order of indexes_columns. */
struct IndexesColumn {
  enum : uint {
    kSchema,
    kTable,
    kIndex,
    kId,
    kUnique,
    kClustered,
    kParts,
    kEntries,
    kDeletes,
    kInMemory,
    kRawBytes,
    kStoredBytes,
    kCount
  };
};

ST_FIELD_INFO indexes_columns[] = {Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                   Column("TABLE_NAME", Varchar(kTableNameChars), NOT_NULL),
                                   Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                   Column("INDEX_ID", ULonglong(), NOT_NULL),
                                   Column("IS_UNIQUE", Varchar(3), NOT_NULL),
                                   Column("IS_CLUSTERED", Varchar(3), NOT_NULL),
                                   Column("PARTS", ULonglong(), NOT_NULL),
                                   Column("ENTRIES", ULonglong(), NOT_NULL),
                                   Column("DELETES", ULonglong(), NOT_NULL),
                                   Column("ENTRIES_IN_MEMORY", ULonglong(), NOT_NULL),
                                   Column("RAW_BYTES", ULonglong(), NOT_NULL),
                                   Column("STORED_BYTES", ULonglong(), NOT_NULL),
                                   CEnd()};
static_assert(array_elements(indexes_columns) == IndexesColumn::kCount + 1);

const char* yes_or_no(bool yes) { return yes ? "YES" : "NO"; }

void add_index(void* context, const firn_index_detail* index) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  char schema[kSchemaNameSize], table[kTableNameSize];
  decode_table_name(index->table_name, schema, table);
  rows->begin();
  rows->store(IndexesColumn::kSchema, schema);
  rows->store(IndexesColumn::kTable, table);
  rows->store(IndexesColumn::kIndex, index->index_name);
  rows->store(IndexesColumn::kId, index->id);
  rows->store(IndexesColumn::kUnique, yes_or_no(index->unique));
  rows->store(IndexesColumn::kClustered, yes_or_no(index->clustered));
  rows->store(IndexesColumn::kParts, index->parts);
  rows->store(IndexesColumn::kEntries, index->entries);
  rows->store(IndexesColumn::kDeletes, index->deletes);
  rows->store(IndexesColumn::kInMemory, index->entries_in_memory);
  rows->store(IndexesColumn::kRawBytes, index->raw_bytes);
  rows->store(IndexesColumn::kStoredBytes, index->stored_bytes);
  rows->add();
}

/* Columns of FIRN_FILES, in the order of files_columns. */
struct FilesColumn {
  enum : uint {
    kName,
    kLevel,
    kRun,
    kSize,
    kEntries,
    kDeletes,
    kSuperseded,
    kRawBytes,
    kIndexes,
    kMinSeqno,
    kMaxSeqno,
    kSmallest,
    kLargest,
    kLocation,
    kCount
  };
};

ST_FIELD_INFO files_columns[] = {Column("FILE_NAME", Varchar(64), NOT_NULL),
                                 Column("LEVEL", ULonglong(), NOT_NULL),
                                 Column("RUN", ULonglong(), NOT_NULL),
                                 Column("STORED_BYTES", ULonglong(), NOT_NULL),
                                 Column("ENTRIES", ULonglong(), NOT_NULL),
                                 Column("DELETES", ULonglong(), NOT_NULL),
                                 Column("SUPERSEDED", ULonglong(), NOT_NULL),
                                 Column("RAW_BYTES", ULonglong(), NOT_NULL),
                                 Column("INDEXES", ULonglong(), NOT_NULL),
                                 Column("MIN_SEQNO", ULonglong(), NOT_NULL),
                                 Column("MAX_SEQNO", ULonglong(), NOT_NULL),
                                 Column("SMALLEST_KEY", Varchar(kKeyChars), NOT_NULL),
                                 Column("LARGEST_KEY", Varchar(kKeyChars), NOT_NULL),
                                 Column("LOCATION", Varchar(16), NOT_NULL),
                                 CEnd()};
static_assert(array_elements(files_columns) == FilesColumn::kCount + 1);

void add_file(void* context, const firn_file_info* file) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(FilesColumn::kName, file->name);
  rows->store(FilesColumn::kLevel, file->level);
  rows->store(FilesColumn::kRun, file->run);
  rows->store(FilesColumn::kSize, file->size);
  rows->store(FilesColumn::kEntries, file->entries);
  rows->store(FilesColumn::kDeletes, file->deletes);
  rows->store(FilesColumn::kSuperseded, file->superseded);
  rows->store(FilesColumn::kRawBytes, file->raw_bytes);
  rows->store(FilesColumn::kIndexes, file->indexes);
  rows->store(FilesColumn::kMinSeqno, file->min_seqno);
  rows->store(FilesColumn::kMaxSeqno, file->max_seqno);
  rows->store(FilesColumn::kSmallest, file->smallest);
  rows->store(FilesColumn::kLargest, file->largest);
  rows->store(FilesColumn::kLocation, file->remote ? "object store" : "local");
  rows->add();
}

/* Columns of FIRN_COMPACTIONS, in the order of jobs_columns. */
struct JobsColumn {
  enum : uint {
    kNumber,
    kKind,
    kReason,
    kFromLevel,
    kToLevel,
    kFilesIn,
    kFilesOut,
    kReadBytes,
    kWrittenBytes,
    kReusedBytes,
    kEntriesIn,
    kEntriesOut,
    kStarted,
    kDurationUs,
    kError,
    kCount
  };
};

ST_FIELD_INFO jobs_columns[] = {
    Column("NUMBER", ULonglong(), NOT_NULL),        Column("KIND", Varchar(16), NOT_NULL),
    Column("REASON", Varchar(16), NOT_NULL),        Column("FROM_LEVEL", ULonglong(), NULLABLE),
    Column("TO_LEVEL", ULonglong(), NOT_NULL),      Column("FILES_READ", ULonglong(), NOT_NULL),
    Column("FILES_WRITTEN", ULonglong(), NOT_NULL), Column("BYTES_READ", ULonglong(), NOT_NULL),
    Column("BYTES_WRITTEN", ULonglong(), NOT_NULL), Column("BYTES_REUSED", ULonglong(), NOT_NULL),
    Column("ENTRIES_READ", ULonglong(), NOT_NULL),  Column("ENTRIES_WRITTEN", ULonglong(), NOT_NULL),
    Column("STARTED", Datetime(0), NULLABLE),       Column("DURATION_US", ULonglong(), NOT_NULL),
    Column("ERROR", Varchar(kKeyChars), NULLABLE),  CEnd()};
static_assert(array_elements(jobs_columns) == JobsColumn::kCount + 1);

void add_job(void* context, const firn_job_info* job) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(JobsColumn::kNumber, job->number);
  rows->store(JobsColumn::kKind, job->kind);
  rows->store(JobsColumn::kReason, job->reason);
  if (job->from_level >= 0) rows->store_nullable(JobsColumn::kFromLevel, uint64_t(job->from_level));
  rows->store(JobsColumn::kToLevel, job->to_level);
  rows->store(JobsColumn::kFilesIn, job->files_in);
  rows->store(JobsColumn::kFilesOut, job->files_out);
  rows->store(JobsColumn::kReadBytes, job->read_bytes);
  rows->store(JobsColumn::kWrittenBytes, job->written_bytes);
  rows->store(JobsColumn::kReusedBytes, job->reused_bytes);
  rows->store(JobsColumn::kEntriesIn, job->entries_in);
  rows->store(JobsColumn::kEntriesOut, job->entries_out);
  rows->store_time(JobsColumn::kStarted, job->begun_us);
  rows->store(JobsColumn::kDurationUs, job->took_us);
  if (job->error) rows->store(JobsColumn::kError, job->error);
  rows->add();
}

/* Columns of FIRN_IO, in the order of io_columns. */
struct IoColumn {
  enum : uint { kClass, kSource, kReads, kBytes, kP50, kP95, kP99, kMax, kCount };
};

ST_FIELD_INFO io_columns[] = {Column("CLASS", Varchar(16), NOT_NULL),
                              Column("SOURCE", Varchar(16), NOT_NULL),
                              Column("READ_COUNT", ULonglong(), NOT_NULL),
                              Column("BYTES", ULonglong(), NOT_NULL),
                              Column("LATENCY_US_P50", ULonglong(), NULLABLE),
                              Column("LATENCY_US_P95", ULonglong(), NULLABLE),
                              Column("LATENCY_US_P99", ULonglong(), NULLABLE),
                              Column("LATENCY_US_MAX", ULonglong(), NULLABLE),
                              CEnd()};
static_assert(array_elements(io_columns) == IoColumn::kCount + 1);

void add_io(void* context, const firn_io_info* io) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(IoColumn::kClass, io->class_name);
  rows->store(IoColumn::kSource, io->source);
  rows->store(IoColumn::kReads, io->reads);
  rows->store(IoColumn::kBytes, io->bytes);
  if (io->reads) {
    rows->store_nullable(IoColumn::kP50, io->latency_us_p50);
    rows->store_nullable(IoColumn::kP95, io->latency_us_p95);
    rows->store_nullable(IoColumn::kP99, io->latency_us_p99);
    rows->store_nullable(IoColumn::kMax, io->latency_us_max);
  }
  rows->add();
}

/* Columns of FIRN_STALLS and FIRN_MEMORY. */
struct PairColumn {
  enum : uint { kName, kFirst, kSecond, kCount };
};

ST_FIELD_INFO stalls_columns[] = {Column("REASON", Varchar(64), NOT_NULL), Column("STALLS", ULonglong(), NOT_NULL),
                                  Column("DURATION_US", ULonglong(), NOT_NULL), CEnd()};
ST_FIELD_INFO memory_columns[] = {Column("USED_BY", Varchar(64), NOT_NULL), Column("BYTES", ULonglong(), NOT_NULL),
                                  Column("LIMIT_BYTES", ULonglong(), NULLABLE), CEnd()};
static_assert(array_elements(stalls_columns) == PairColumn::kCount + 1);
static_assert(array_elements(memory_columns) == PairColumn::kCount + 1);

void add_stall(void* context, const firn_named_pair* stall) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(PairColumn::kName, stall->name);
  rows->store(PairColumn::kFirst, stall->first);
  rows->store(PairColumn::kSecond, stall->second);
  rows->add();
}

void add_memory(void* context, const firn_named_pair* memory) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(PairColumn::kName, memory->name);
  rows->store(PairColumn::kFirst, memory->first);
  if (memory->second) rows->store_nullable(PairColumn::kSecond, memory->second);
  rows->add();
}

int fill_indexes(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_index_details(database, add_index, rows); });
}

int fill_files(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_files(database, add_file, rows); });
}

int fill_jobs(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_jobs(database, add_job, rows); });
}

int fill_io(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_io(database, add_io, rows); });
}

int fill_stalls(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_stalls(database, add_stall, rows); });
}

int fill_memory(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_memory(database, add_memory, rows); });
}

}  // namespace

int init_firn_indexes(void* schema) { return init_schema_table(schema, indexes_columns, fill_indexes); }

int init_firn_files(void* schema) { return init_schema_table(schema, files_columns, fill_files); }

int init_firn_compactions(void* schema) { return init_schema_table(schema, jobs_columns, fill_jobs); }

int init_firn_io(void* schema) { return init_schema_table(schema, io_columns, fill_io); }

int init_firn_stalls(void* schema) { return init_schema_table(schema, stalls_columns, fill_stalls); }

int init_firn_memory(void* schema) { return init_schema_table(schema, memory_columns, fill_memory); }

}  // namespace firn
