// Takes the place of the header of the same name where kernels run on CPU threads.
#pragma once

#include "zerohop/words.cuh"

namespace zerohop::gpu {

using namespace device;

// Each half is one access, as over the links that promise no more.
inline void put_pair(u64 at, u64 first, u64 second) {
  word_at<u64>(at + 8).store(second);
  word_at<u64>(at).store(first);
}
inline void store_sixteen(u64 at, const uint4& value) { *reinterpret_cast<uint4*>(at) = value; }
inline bool take_if(u64 word, Note seen) {
  return word_at<Note>(word).compare_exchange_strong(seen, 0);
}
inline void glance_at_pair(u64 at, u64& first, u64& second) {
  std::this_thread::yield();  // as a rule it is polled
  first = word_at<u64>(at).load();
  second = word_at<u64>(at + 8).load();
}
// Each access acquires: only a GPU can tell whether the kernels order what they must.
inline void acquire_pair(u64 at, u64& first, u64& second) { glance_at_pair(at, first, second); }

}  // namespace zerohop::gpu
