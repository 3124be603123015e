#pragma once

#include <string>

namespace nibble {

// "98.4 MB": powers of 1000, as disks and bandwidths are sold. Every size that nibble prints goes
// through here, so that GB and GiB never mix.
std::string FormatBytes(double bytes);

}  // namespace nibble
