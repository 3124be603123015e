#pragma once

#include <string_view>

#include "format/format.h"
#include "format/kv_format.h"

namespace nibble::calibration_cases {

// What is measured to fit the terms, and what is measured to see whether they predict, have no
// shape, context or batch in common but batch 1, which has kernels of its own
// (calibration_cases_test.cc).

// Rows of activations of the measured matrix products, from a near cache and from memory. Edges of
// the kernels' tiles (8 rows) and what lies right behind them.
inline constexpr int kNearRows[] = {1, 2, 4, 8, 9, 16, 17, 24, 25, 40, 64, 128, 256};
inline constexpr int kFarRows[] = {1, 2, 4, 8, 9, 16, 17, 40};
inline constexpr int kQuickNearRows[] = {1, 2, 4, 8, 9, 16, 40, 128};
inline constexpr int kQuickFarRows[] = {1, 4, 16};
inline constexpr int kCols = 2048;  // depth of those matrices

inline constexpr int kHeadDims[] = {64, 128, 256};
inline constexpr int kGroups[] = {1, 2, 4, 8};
// Positions of the queries: a unit's start, so that all pages before it are seen sealed.
inline constexpr int kShortContext = 128;
inline constexpr int kLongContext = 384;
inline constexpr int kFarContext = 1536;

// Small models whose steps show what is neither product nor attention.
struct SmallModel {
  std::string_view name;
  std::string_view config;
};
inline constexpr SmallModel kSmallModels[] = {
    {"many layers",
     R"({"model_type":"llama","hidden_size":256,"intermediate_size":512,"num_hidden_layers":24,
      "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":1024,
      "max_position_embeddings":2048,"rms_norm_eps":1e-5,"rope_theta":10000,
      "tie_word_embeddings":true})"},
    {"wide feed-forward",
     R"({"model_type":"llama","hidden_size":768,"intermediate_size":3072,"num_hidden_layers":4,
      "num_attention_heads":12,"num_key_value_heads":4,"vocab_size":2048,
      "max_position_embeddings":2048,"rms_norm_eps":1e-5,"rope_theta":10000,
      "tie_word_embeddings":true})"},
    {"many heads",
     R"({"model_type":"llama","hidden_size":1024,"intermediate_size":512,"num_hidden_layers":4,
      "num_attention_heads":16,"num_key_value_heads":8,"vocab_size":2048,
      "max_position_embeddings":2048,"rms_norm_eps":1e-5,"rope_theta":10000,
      "tie_word_embeddings":true})"},
    {"large vocabulary",
     R"({"model_type":"llama","hidden_size":256,"intermediate_size":512,"num_hidden_layers":3,
      "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":65536,
      "max_position_embeddings":2048,"rms_norm_eps":1e-5,"rope_theta":10000,
      "tie_word_embeddings":true})"}};
inline constexpr std::string_view kSmallFormat = "q8_0";
inline constexpr int kSmallBatches[] = {1, 2, 4, 16, 40};

// What predictions are compared with: decode steps of whole models.
struct ValidatedModel {
  std::string_view shape;    // of bench --random
  std::string_view weights;  // formats, separated by commas
};
inline constexpr ValidatedModel kValidatedModels[] = {{"smollm2-135m", "q4_0,q4_k_m,q8_0,f16"},
                                                      {"gemma3-270m", "q4_k_m,q8_0,bf16"},
                                                      {"tinyllama-1.1b", "q4_k_m,q6_k,q8_0"}};
// Not every batch at every depth: that would be an hour.
struct ValidatedPoint {
  std::string_view kv;
  int batch;
  int context;
};
inline constexpr ValidatedPoint kValidatedPoints[] = {
    {"f16", 1, 0},      {"f16", 3, 0},    {"f16", 6, 0},      {"f16", 12, 0},
    {"f16", 20, 0},     {"f16", 32, 0},   {"f16", 1, 2000},   {"f16", 6, 2000},
    {"f16", 32, 600},   {"f16", 1, 8100}, {"int8", 1, 4000},  {"int8", 12, 2000},
    {"int4", 6, 2000},  {"fp8", 3, 2000}, {"kivi4", 6, 2000}, {"kivi2", 1, 8100},
    {"kivi2", 12, 600}, {"f32", 3, 600},  {"int8", 20, 600},  {"int4", 3, 4000}};

}  // namespace nibble::calibration_cases
