#pragma once

#include <memory>

namespace CLI {
class App;
class Config;
}  // namespace CLI

namespace nibble::cli {

// Reads --config files: CLI11's TOML, and beside it
// - common flags in a command's section, [bench] kv = "f32": they count for that command, and more
//   than the same flag at the top;
// - lists for flags that take one text with commas, kv = ["f16", "f32"].
// `app` must outlive the reader.
std::shared_ptr<CLI::Config> MakeConfigReader(const CLI::App& app);

}  // namespace nibble::cli
