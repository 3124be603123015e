#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"

namespace nibble {

// A node of memory and the processors beside it.
struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // ascending
};

// Nodes that have memory and at least one of the processors, by id; empty where Linux does not
// tell. root stands before /sys; without cpus those that this process may run on.
std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& root = "/");
std::vector<NumaNode> ReadNumaNodes(const std::filesystem::path& root, std::span<const int> cpus);

// Index of the node that a thread of a pool belongs to: neighbours together, as many to each node
// as its share of the processors.
size_t NumaNodeOfThread(std::span<const NumaNode> nodes, int thread, int threads);

// Keeps the calling thread on these processors. kIo when Linux refuses.
Status PinThisThread(std::span<const int> cpus);

// Memory that has not been touched yet will lie on all nodes in turn, page by page. kIo when Linux
// refuses.
Status InterleaveMemory(std::span<std::byte> memory, std::span<const NumaNode> nodes);

}  // namespace nibble
