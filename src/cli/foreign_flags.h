#pragma once

#include <string>
#include <vector>

namespace nibble::cli {

struct Translated {
  std::vector<std::string> arguments;
  std::vector<std::string> notes;  // "-np 4 is --max-seqs 4 here", for people
};

// Arguments of `serve` with llama.cpp's and vLLM's spellings of its flags in ours. What is not one
// of them stays as it is.
Translated TranslateForeignFlags(const std::vector<std::string>& arguments);

}  // namespace nibble::cli
