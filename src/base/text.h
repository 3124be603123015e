#pragma once

#include <string>
#include <string_view>

namespace nibble {

// "98.4 MB": powers of 1000, as disks and bandwidths are sold. Every size that nibble prints goes
// through here, so that GB and GiB never mix.
std::string FormatBytes(double bytes);

// A to Z as a to z; other bytes, those of UTF-8 too, as they are.
std::string AsciiLower(std::string_view text);

// & < > " and ' as character references, as markupsafe writes them.
std::string EscapeHtml(std::string_view text);

}  // namespace nibble
