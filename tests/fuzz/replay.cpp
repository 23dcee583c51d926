// Drives a fuzz target without libFuzzer: replays its corpus, then inputs mutated from it.
//
//   fuzz_address [--seed N] [--seconds S] FILE-OR-FOLDER ...
//
// What is run depends on the seed alone; how much of it, on the time. An input that ends the
// process or takes longer than kLongest is left in a file of the working directory, for
//   fuzz_address FILE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMostNbytes = 4096;
constexpr unsigned kLongest = 30;  // seconds for one input

Bytes running;              // the input
std::string program, kept;  // its name; the file for an input that ends the process

void keep_input() {
  const int fd = ::open(kept.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && ::write(fd, running.data(), running.size()) ==
                                      static_cast<ssize_t>(running.size());
  std::fprintf(stderr, written ? "the input is in %s: replay it with %s %s\n" : "cannot write %s\n",
               kept.c_str(), program.c_str(), kept.c_str());
}

void on_signal(int number) {
  std::fprintf(stderr, "%s\n", number == SIGALRM ? "an input takes too long" : "aborted");
  keep_input();
  ::_exit(1);
}

void run(const Bytes& input) {
  running = input;
  running.shrink_to_fit();  // so that a sanitizer sees a read past its end
  ::alarm(kLongest);
  LLVMFuzzerTestOneInput(running.data(), running.size());
}

std::vector<Bytes> load(const std::vector<std::string>& places) {
  std::vector<std::filesystem::path> files;
  for (const std::string& place : places) {
    if (std::filesystem::is_directory(place)) {
      for (const auto& entry : std::filesystem::directory_iterator(place)) files.push_back(entry);
    } else {
      files.emplace_back(place);
    }
  }
  std::ranges::sort(files);
  std::vector<Bytes> all;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      std::exit(2);
    }
    all.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return all;
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), rng_(seed) {
    corpus_.emplace_back();  // nothing, too
  }

  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (std::size_t left = 1 + below(4); left > 0; --left) change(bytes);
    if (bytes.size() > kMostNbytes) bytes.resize(kMostNbytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(rng_() % bound); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(rng_()); }
  std::ptrdiff_t place(const Bytes& bytes) {
    return static_cast<std::ptrdiff_t>(below(bytes.size() + 1));
  }

  void change(Bytes& bytes) {
    static constexpr std::uint8_t kTelling[] = {0, 1, 2, 0x7f, 0x80, 0xff};
    const std::size_t what = bytes.empty() ? 0 : below(7);
    const std::size_t at = bytes.empty() ? 0 : below(bytes.size());
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (what) {
      case 0: {
        Bytes more(1 + below(16));
        std::ranges::generate(more, [this] { return byte(); });
        bytes.insert(bytes.begin() + place(bytes), more.begin(), more.end());
        return;
      }
      case 1: bytes[at] ^= static_cast<std::uint8_t>(1u << below(8)); return;
      case 2: bytes[at] = kTelling[below(std::size(kTelling))]; return;
      case 3: bytes[at] = byte(); return;
      case 4:
        bytes.erase(from, from + 1 + static_cast<std::ptrdiff_t>(below(bytes.size() - at)));
        return;
      case 5: {
        const Bytes part(from, from + 1 + static_cast<std::ptrdiff_t>(below(bytes.size() - at)));
        bytes.insert(bytes.begin() + place(bytes), part.begin(), part.end());
        return;
      }
      default: {
        const Bytes& other = corpus_[below(corpus_.size())];
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + place(other), other.end());
      }
    }
  }

  std::vector<Bytes> corpus_;
  std::mt19937_64 rng_;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  double seconds = 0;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool named = word.starts_with("--") && i + 1 < argc;
    if (named && word == "--seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (named && word == "--seconds") {
      seconds = std::strtod(argv[++i], nullptr);
    } else {
      places.push_back(word);
    }
  }
  program = std::filesystem::path(argv[0]).filename();
  kept = "crash-" + program + "-" + std::to_string(::getpid());
  __sanitizer_set_death_callback(keep_input);
  for (const int number : {SIGABRT, SIGALRM}) ::signal(number, on_signal);

  const std::vector<Bytes> corpus = load(places);
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus: name files or folders\n");
    return 2;
  }
  std::printf("%s: seed %llu, %zu inputs of the corpus", program.c_str(),
              static_cast<unsigned long long>(seed), corpus.size());
  std::fflush(stdout);
  for (const Bytes& input : corpus) run(input);
  Mutator mutator(corpus, seed);
  const auto begin = Clock::now();
  const auto left = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t count = 0;
  for (; left() < seconds; ++count) run(mutator.next());
  ::alarm(0);
  std::printf(" and %llu mutated ones in %.1f s\n", static_cast<unsigned long long>(count), left());
  return 0;
}
