# nibble_embed(OUT IN NAME): a C++ source OUT that defines `extern const std::string_view NAME` in
# namespace nibble with the bytes of the file IN.
function(nibble_embed OUT IN NAME)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${IN})
  file(READ ${IN} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX REPLACE "(('[^']*',){16})" "\\1\n" bytes "${bytes}")
  file(CONFIGURE OUTPUT ${OUT} CONTENT
"#include <string_view>

namespace nibble {
namespace {
const char @NAME@Bytes[] = {
@bytes@};
}  // namespace
extern const std::string_view @NAME@;
const std::string_view @NAME@(@NAME@Bytes, sizeof @NAME@Bytes);
}  // namespace nibble
" @ONLY)
endfunction()
