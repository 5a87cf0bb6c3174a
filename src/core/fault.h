// Faults in data that only the device can read. Functions of core report each one to a callable
// `report(Fault)`; who records the first is the backend's business.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

// Values equal TW_FAULT_* and TW_WHAT_* of the C header (api/translate.cc asserts it).
enum class FaultCode : std::int32_t { kNone = 0, kNegative = 1, kAboveBound = 2, kDisagrees = 3 };

enum class FaultWhat : std::int32_t {
  kKvLen = 1,
  kQIndptr = 2,
  kKvIndptr = 3,
  kPageIndptr = 4,
  kLastPageLen = 5,
  kPageRow = 6,
  kPageId = 7,
  kFirstPage = 8,
  kPosition = 9,
  kQStart = 10,
  kSlot = 11,
  kBatchIndex = 12,
  kMask = 13
};

struct Fault {
  FaultCode code;
  FaultWhat what;
  std::int32_t request;
  std::int32_t row;  // -1: none
  std::int64_t value;
};

// The caller's status record: same layout as tw_status_record. The first fault stays.
struct FaultRecord {
  std::int32_t code, what, request, row;
  std::int64_t value;
};

// For readers that run after the faults were recorded by another pass.
struct IgnoreFaults {
  TW_DEVICE void operator()(const Fault&) const {}
};

}  // namespace tilewise::core
