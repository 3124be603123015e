#include <ctime>

#include "tokenizer/jinja.h"
#include "tokenizer/jinja_interpreter.h"

namespace nibble {

JinjaTime JinjaTime::FromClock(std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch();
  std::tm local{};
  localtime_r(&seconds, &local);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  return {local.tm_year + 1900,
          local.tm_mon + 1,
          local.tm_mday,
          local.tm_hour,
          local.tm_min,
          local.tm_sec,
          int((micros % 1'000'000 + 1'000'000) % 1'000'000)};
}

namespace jinja {
namespace {

// Days since 1970-01-01 of the proleptic Gregorian calendar.
int64_t DaysSinceEpoch(int year, int month, int day) {
  return std::chrono::sys_days(std::chrono::year(year) / month / day).time_since_epoch().count();
}

std::tm ToTm(const JinjaTime& time) {
  std::tm out{};
  out.tm_year = time.year - 1900;
  out.tm_mon = time.month - 1;
  out.tm_mday = time.day;
  out.tm_hour = time.hour;
  out.tm_min = time.minute;
  out.tm_sec = time.second;
  const int64_t days = DaysSinceEpoch(time.year, time.month, time.day);
  out.tm_yday = int(days - DaysSinceEpoch(time.year, 1, 1));
  out.tm_wday = int(((days + 4) % 7 + 7) % 7);
  out.tm_isdst = -1;
  return out;
}

}  // namespace

// datetime.strftime of a time without a zone: %f is microseconds, %z and %Z are empty.
std::string FormatTime(const JinjaTime& time, const std::string& format) {
  if (format.size() > 4096) Raise("strftime_now: the format is longer than 4096 bytes");
  if (time.month < 1 || time.month > 12 || time.day < 1 || time.day > 31) {
    Raise("strftime_now: the clock gives month {} and day {}", time.month, time.day);
  }
  std::string prepared;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      prepared += format[i];
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      prepared += fmt::format("{:06}", time.microsecond);
    } else if (directive != 'z' && directive != 'Z') {
      prepared += {'%', directive};
    }
  }
  if (prepared.empty()) return "";
  const std::tm fields = ToTm(time);
  std::string out(prepared.size() * 32 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), prepared.c_str(), &fields));
  return out;
}

}  // namespace jinja
}  // namespace nibble
