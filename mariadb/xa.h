/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

using Xid = MYSQL_XID;

/* An xid as bytes: format id (8, little-endian), lengths of its two parts (1 each), the parts. */
class XidImage {
 public:
  explicit XidImage(const Xid& xid);
  /* Returns 0, or 1 if the bytes are not the image of an xid. */
  static int decode(const uint8_t* bytes, size_t size, Xid* out);

  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kHead = 10;
  uint8_t bytes_[kHead + MYSQL_XIDDATASIZE];
  size_t size_;
};

/*
  Whether a client chose the xid with XA START. Otherwise the server made it, for a commit with its
  binary log, and the transaction ends in its session.
*/
bool is_from_client(const Xid& xid);

/* The handlerton's callbacks for transactions in doubt. */
int recover(handlerton*, XID* list, uint length);
int commit_by_xid(handlerton*, XID* xid);
int rollback_by_xid(handlerton*, XID* xid);

}  // namespace firn
