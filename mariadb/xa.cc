/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* XA RECOVER, and commit and rollback of prepared transactions by their xid. */

#include "xa.h"
#include "log.h"

namespace firn {

/* plugin.h promises that XID and MYSQL_XID are binary compatible. */
static_assert(sizeof(XID) >= offsetof(Xid, data) + MYSQL_XIDDATASIZE && XIDDATASIZE == MYSQL_XIDDATASIZE,
              "the server's XID differs from the plugin API's");

namespace {

/* Return codes of the X/Open XA specification, which the server expects from the callbacks. */
enum XaAnswer { kXaOk = 0, kXaUnknownXid = -4, kXaResourceError = -3, kXaResourceFailed = -7 };

}  // namespace

XidImage::XidImage(const Xid& xid) {
  const size_t gtrid = xid.formatID < 0 ? 0 : size_t(xid.gtrid_length);
  const size_t bqual = xid.formatID < 0 ? 0 : size_t(xid.bqual_length);
  int8store(bytes_, ulonglong(xid.formatID));
  bytes_[8] = uint8_t(gtrid);
  bytes_[9] = uint8_t(bqual);
  memcpy(bytes_ + kHead, xid.data, gtrid + bqual);
  size_ = kHead + gtrid + bqual;
}

int XidImage::decode(const uint8_t* bytes, size_t size, Xid* out) {
  if (size < kHead || size != kHead + bytes[8] + bytes[9] || size - kHead > sizeof(out->data)) return 1;
  out->formatID = long(sint8korr(bytes));
  out->gtrid_length = bytes[8];
  out->bqual_length = bytes[9];
  memcpy(out->data, bytes + kHead, size - kHead);
  return 0;
}

bool is_from_client(const Xid& xid) {
  /* The same test as in XID::get_my_xid(). */
  return xid.gtrid_length != MYSQL_XID_GTRID_LEN || xid.bqual_length != 0 ||
         memcmp(xid.data, MYSQL_XID_PREFIX, MYSQL_XID_PREFIX_LEN) != 0;
}

int recover(handlerton*, XID* list, uint length) {
  if (!length || !list || !database) return 0;
  uint8_t* slots =
      static_cast<uint8_t*>(my_malloc(PSI_NOT_INSTRUMENTED, size_t(length) * FIRN_XID_SLOT, MYF(MY_WME | MY_ZEROFILL)));
  if (!slots) return 0;
  const uint32_t found = firn_recover(database, slots, length, 0);
  uint filled = 0;
  for (uint32_t i = 0; i < found; i++) {
    const uint8_t* slot = slots + size_t(i) * FIRN_XID_SLOT;
    const uint32_t size = *reinterpret_cast<const uint32_t*>(slot);
    if (size > FIRN_XID_SLOT - 4 || XidImage::decode(slot + 4, size, reinterpret_cast<Xid*>(&list[filled]))) {
      sql_print_error("FIRN: a prepared transaction has a name that is no xid; it stays prepared");
      continue;
    }
    filled++;
  }
  my_free(slots);
  return int(filled);
}

namespace {

int finish(XID* xid, firn_status (*how)(const firn_db*, const uint8_t*, size_t)) {
  if (!database) return kXaResourceFailed;
  XidImage image(*reinterpret_cast<const Xid*>(xid));
  switch (how(database, image.data(), image.size())) {
    case FIRN_OK:
      return kXaOk;
    case FIRN_NO_ROW:
      return kXaUnknownXid;
    default:
      sql_print_error("FIRN: cannot finish a prepared transaction: %s", firn_last_error());
      return kXaResourceError;
  }
}

}  // namespace

int commit_by_xid(handlerton*, XID* xid) { return finish(xid, firn_commit_xid); }

int rollback_by_xid(handlerton*, XID* xid) { return finish(xid, firn_rollback_xid); }

}  // namespace firn
