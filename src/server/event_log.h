#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/json_text.h"

namespace nibble::server {

// One line per event on standard error: "12:00:01.123 request status=200 …", or JSON.
class EventLog {
 public:
  enum class Form : uint8_t { kNone, kText, kJson };
  explicit EventLog(Form form) : form_(form) {}
  // Any thread. members: an object of plain values.
  void Write(std::string_view event, const Json& members) const;

 private:
  Form form_;
};

}  // namespace nibble::server
