#include "server/event_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace nibble::server {

void EventLog::Write(std::string_view event, const Json& members) const {
  if (form_ == Form::kNone) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = millis / 1000;
  std::tm local = {};
  gmtime_r(&seconds, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &local);
  const std::string stamp = fmt::format("{}.{:03}Z", time, millis % 1000);
  std::string line;
  if (form_ == Form::kJson) {
    Json out = {{"time", stamp}, {"event", event}};
    out.update(members);
    line = DumpJson(out);
  } else {
    line = stamp + " " + std::string(event);
    for (const auto& [key, value] : members.items()) line += " " + key + "=" + DumpJson(value);
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace nibble::server
