#include <cmath>
#include <vector>

#include "model/config/hf_reader.h"
#include "model/config/validate.h"

namespace nibble {
namespace {

// Null counts as absent: transformers writes null for an empty rope_scaling.
std::optional<JsonValue> FindObject(const HfReader& reader, std::string_view key) {
  const std::optional<JsonValue> value = reader.Find(key);
  if (!value || !value->is_object()) return std::nullopt;
  return value;
}

Status CheckObjectOrNull(const HfReader& reader, std::string_view key) {
  const std::optional<JsonValue> value = reader.Find(key);
  if (!value || value->is_null() || value->is_object()) return {};
  return BadInput("'{}': expected an object, found {}", key, JsonKindName(value->kind()));
}

Result<std::vector<double>> Factors(JsonValue parameters, std::string_view key) {
  std::vector<double> factors;
  const std::optional<JsonValue> value = parameters.Find(key);
  if (!value || value->is_null()) return factors;
  auto array = value->AsArray();
  if (!array) return Within(std::string(key), array.error());
  if (array->size() > ConfigLimits::kHeadDim) {
    return BadInput("'{}': expected at most {} numbers, found {}", key,
                    static_cast<int>(ConfigLimits::kHeadDim), array->size());
  }
  for (const JsonValue element : *array) {
    auto factor = element.AsDouble();
    if (!factor) return Within(std::string(key), factor.error());
    factors.push_back(*factor);
  }
  return factors;
}

Result<RopeScaling> ScalingFromName(std::string_view name, bool yarn_is_longrope) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  // Early Phi-3 files call LongRoPE "su" too.
  if (name == "longrope" || name == "su") return RopeScaling::kLongRope;
  if (name == "yarn") return yarn_is_longrope ? RopeScaling::kLongRope : RopeScaling::kYarn;
  return BadInput("rope_type: expected default, linear, llama3, yarn or longrope, found '{}'",
                  name.substr(0, 64));
}

// What rope parameters fall back to: the keys of 4.x beside them.
struct RopeDefaults {
  HfDefaults type;
  double theta = 10000;
  double partial = 1;
  int head_dim = 0;
  int context = 0;
  int original_context = 0;  // original_max_position_embeddings of the config itself; 0: none
};

Status ReadScaling(const HfReader& reader, const RopeDefaults& defaults, RopeConfig& rope) {
  NIBBLE_TRY(const std::string_view old_name, reader.StringOr("type", "default"));
  NIBBLE_TRY(const std::string_view name, reader.StringOr("rope_type", old_name));
  NIBBLE_TRY(rope.scaling, ScalingFromName(name, defaults.type.yarn_is_longrope));
  if (rope.scaling == RopeScaling::kNone) return {};
  NIBBLE_TRY(rope.original_context,
             reader.IntOr("original_max_position_embeddings", defaults.context));
  if (defaults.original_context > 0) rope.original_context = defaults.original_context;
  double ratio = 0;  // yarn and longrope may leave the factor out
  if (rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope) {
    if (rope.original_context < 1) {
      return BadInput("'original_max_position_embeddings': expected a positive number, found {}",
                      rope.original_context);
    }
    ratio = static_cast<double>(defaults.context) / rope.original_context;
  }
  NIBBLE_TRY(rope.factor, reader.DoubleOr("factor", ratio));
  NIBBLE_TRY(rope.low_freq_factor, reader.DoubleOr("low_freq_factor", 1));
  NIBBLE_TRY(rope.high_freq_factor, reader.DoubleOr("high_freq_factor", 4));
  NIBBLE_TRY(rope.beta_fast, reader.DoubleOr("beta_fast", 32));
  NIBBLE_TRY(rope.beta_slow, reader.DoubleOr("beta_slow", 1));
  if (rope.beta_fast == 0) rope.beta_fast = 32;
  if (rope.beta_slow == 0) rope.beta_slow = 1;
  NIBBLE_TRY(rope.mscale, reader.DoubleOr("mscale", 0));
  NIBBLE_TRY(rope.mscale_all_dim, reader.DoubleOr("mscale_all_dim", 0));
  NIBBLE_TRY(rope.attention_factor, reader.DoubleOr("attention_factor", 0));
  NIBBLE_TRY(rope.truncate, reader.BoolOr("truncate", true));
  if (rope.scaling == RopeScaling::kLongRope) {
    NIBBLE_TRY(rope.short_factor, Factors(reader.object(), "short_factor"));
    NIBBLE_TRY(rope.long_factor, Factors(reader.object(), "long_factor"));
  }
  return {};
}

Result<RopeConfig> ReadRope(std::optional<JsonValue> parameters, const RopeDefaults& defaults) {
  RopeConfig rope;
  rope.theta = defaults.theta;
  double partial = defaults.partial;
  if (parameters) {
    const HfReader reader(*parameters);
    NIBBLE_TRY(rope.theta, reader.DoubleOr("rope_theta", defaults.theta));
    NIBBLE_TRY(partial, reader.DoubleOr("partial_rotary_factor", defaults.partial));
    if (!defaults.type.partial_rotary) partial = 1;
    NIBBLE_RETURN_IF_ERROR(ReadScaling(reader, defaults, rope));
  }
  if (!(partial >= 0 && partial <= 1)) {
    return BadInput("'partial_rotary_factor': expected 0 to 1, found {}", partial);
  }
  rope.dims = static_cast<int>(defaults.head_dim * partial);
  return rope;
}

// The object that holds one set of parameters, or one per layer type.
struct RopeSource {
  std::optional<JsonValue> flat, full, sliding;
};

Result<RopeSource> FindRopes(const HfReader& reader) {
  RopeSource source;
  NIBBLE_RETURN_IF_ERROR(CheckObjectOrNull(reader, "rope_scaling"));
  NIBBLE_RETURN_IF_ERROR(CheckObjectOrNull(reader, "rope_parameters"));
  source.flat = FindObject(reader, "rope_scaling");
  if (!source.flat) source.flat = FindObject(reader, "rope_parameters");
  if (source.flat) {
    const HfReader nested(*source.flat);
    for (const std::string_view key : {"full_attention", "sliding_attention"}) {
      NIBBLE_RETURN_IF_ERROR(CheckObjectOrNull(nested, key));
    }
    source.full = FindObject(nested, "full_attention");
    source.sliding = FindObject(nested, "sliding_attention");
    if (source.full || source.sliding) source.flat.reset();
  }
  return source;
}

}  // namespace

Result<HfRopes> ReadHfRopes(const HfReader& reader, const HfModelType& type, int head_dim,
                            int context) {
  NIBBLE_TRY(const RopeSource source, FindRopes(reader));
  RopeDefaults defaults{.type = type.defaults, .head_dim = head_dim, .context = context};
  NIBBLE_TRY(defaults.theta, reader.DoubleOr("rope_theta", type.defaults.theta));
  if (type.defaults.partial_rotary) {
    NIBBLE_TRY(defaults.partial, reader.DoubleOr("partial_rotary_factor", 1));
  }
  NIBBLE_TRY(defaults.original_context,
             reader.IntOr("original_max_position_embeddings", type.defaults.original_context));
  HfRopes ropes;
  NIBBLE_TRY(ropes.full, ReadRope(source.flat ? source.flat : source.full, defaults));
  const bool local = type.defaults.local_theta > 0;
  if (local) {
    NIBBLE_TRY(defaults.theta, reader.DoubleOr("rope_local_base_freq", type.defaults.local_theta));
  }
  if (local || source.sliding) {
    NIBBLE_TRY(ropes.sliding, ReadRope(source.sliding, defaults));
  }
  return ropes;
}

}  // namespace nibble
