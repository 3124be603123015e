#pragma once

// Whether the address or the thread sanitizer is compiled in: 0 or 1. GCC and clang say it in
// different ways.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NIBBLE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NIBBLE_SANITIZED 1
#endif
#endif
#ifndef NIBBLE_SANITIZED
#define NIBBLE_SANITIZED 0
#endif
