// Takes the place of the header of the same name where kernels run on CPU threads. Stronger than
// there: every access orders, and fences do nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "zerohop/note.h"

namespace zerohop::device {

template <typename T>
std::atomic_ref<T> word_at(u64 at) {
  return std::atomic_ref(*reinterpret_cast<T*>(at));
}
inline void put_word(u64 word, u32 value) {
  word_at<u32>(word).store(value);
  std::this_thread::yield();  // others see it before the next one
}
inline void put_word(u64 word, Note note) { word_at<Note>(word).store(note); }
inline void fence_gpu() {}
inline void fence_system() {}
inline u32 acquire(u64 word) { return word_at<u32>(word).load(); }
inline Note acquire_note(u64 word) {
  std::this_thread::yield();  // as a rule it is polled
  return word_at<Note>(word).load();
}
inline u32 glance(u64 word) { return acquire(word); }
inline Note glance_at_note(u64 word) { return word_at<Note>(word).load(); }
inline u32 take(u64 word) { return word_at<u32>(word).exchange(0); }
inline Note take_note(u64 word, Note) { return word_at<Note>(word).exchange(0); }
inline void forget_note(u64 word, Note seen) {
  word_at<Note>(word).compare_exchange_strong(seen, 0);
}
inline u64 nanoseconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<u64>(std::chrono::nanoseconds(now).count());
}

}  // namespace zerohop::device
