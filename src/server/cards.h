#pragma once

#include <filesystem>

#include "server/json_text.h"

namespace nibble::server {

// {folder, models[]}: the models that lie in a folder, with their sizes and what those that nibble
// quantised say about themselves (`card`; null for others). At most 256. A model that cannot be
// read is named with its `problem`.
Json CardsJson(const std::filesystem::path& folder);

}  // namespace nibble::server
