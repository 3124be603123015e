#pragma once

#include <optional>
#include <string_view>

#include "server/http.h"

namespace nibble::server {

// Whether a path is one of the web page's own files. They hold nothing of the model or of anybody's
// requests, so they need no key.
bool IsPageFile(std::string_view path);

// The file at a path, or 304 where the client has it already. `path` must be one of them.
HttpResponse PageFile(std::string_view path, std::string_view if_none_match);

}  // namespace nibble::server
