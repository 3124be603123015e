#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/char_dfa.h"

namespace nibble::grammar {

// The strings of a `format`: date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid,
// uri, uri-reference, json-pointer, relative-json-pointer. All are valid; of the rarer valid ones
// some are left out (leap seconds, quoted mail boxes, international names). Error: another format.
Result<CharDfa> StringsOfFormat(std::string_view format);

}  // namespace nibble::grammar
