// The `tilewise` command: reads the options and hands over to the commands. Exit status 0: fine; 1:
// a check failed or the work could not be done; 2: bad arguments, with a message on standard error
// that names the option.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <iostream>
#include <regex>
#include <string>

#include "bench/bench.h"
#include "common/library.h"
#include "generate/generate.h"
#include "info.h"
#include "verify/verify.h"

namespace {

constexpr int kFailed = 1;
constexpr int kBadArguments = 2;

const CLI::Validator kRegularExpression(
    [](std::string& text) -> std::string {
      try {
        const std::regex compiled(text);
      } catch (const std::regex_error& error) {
        return "not a regular expression: " + text + " (" + error.what() + ")";
      }
      return "";
    },
    "");

// Beyond these an option is a slip of the finger.
const CLI::Range kThreads(0, 4096);
constexpr std::int64_t kMostCases = 100000000;

void add_backend(CLI::App* command, std::string* backend) {
  command->add_option("--backend", *backend, "Backend to run on")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

void add_filter(CLI::App* command, std::string* filter, const std::string& what) {
  command->add_option("--filter", *filter, "Only " + what + " that this regular expression finds")
      ->type_name("RE")
      ->check(kRegularExpression);
}

void add_threads(CLI::App* command, int* threads, const char* what = "Threads of every call") {
  command->add_option("--threads", *threads, std::string(what) + ", 0 = one per core")
      ->check(kThreads)
      ->capture_default_str();
}

CLI::App* add_info(CLI::App& app, tilewise::tools::InfoOptions& options) {
  CLI::App* command =
      app.add_subcommand("info", "Show build, backends, machine, device and kernel variants");
  command->add_flag("--json", options.json, "Print one JSON document");
  return command;
}

CLI::App* add_verify(CLI::App& app, tilewise::verify::VerifyOptions& options) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check every variant on this machine against the float64 reference");
  add_backend(command, &options.backend);
  add_filter(command, &options.filter, "cases with a line");
  command
      ->add_option("--cases", options.cases,
                   "Number of cases: 0 = the whole matrix, fewer are spread over it, more are "
                   "drawn at random beyond it")
      ->check(CLI::Range(std::int64_t{0}, kMostCases))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the random cases")->capture_default_str();
  add_threads(command, &options.threads, "Threads of the reference; with a device, cases at once");
  command->add_flag("--json", options.json, "Print one JSON document instead of the table");
  return command;
}

CLI::App* add_bench(CLI::App& app, tilewise::bench::BenchOptions& options) {
  CLI::App* command =
      app.add_subcommand("bench", "Time the kernels against this machine's own limits");
  add_backend(command, &options.backend);
  add_filter(command, &options.filter, "rows with a name");
  command->add_option("--out", options.out, "Also write the JSON document to this file")
      ->type_name("FILE.json");
  command->add_option("--plot", options.plot, "Also write a plot of the shares to this file")
      ->type_name("FILE.svg");
  add_threads(command, &options.threads);
  command->add_flag("--quick", options.quick,
                    "Three short samples a row: for a look, not for a claim");
  command->add_flag("--json", options.json, "Print one JSON document instead of the table");
  return command;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Attention kernels for LLM inference: look at the build, check it, time it, make it write.");
  app.name("tilewise");
  app.set_version_flag("--version", "tilewise " + tilewise::tools::read_library().version);

  tilewise::tools::InfoOptions info_options;
  tilewise::verify::VerifyOptions verify_options;
  tilewise::bench::BenchOptions bench_options;
  tilewise::generate::GenerateOptions generate_options;
  const CLI::App* info = add_info(app, info_options);
  const CLI::App* verify = add_verify(app, verify_options);
  const CLI::App* bench = add_bench(app, bench_options);
  tilewise::generate::add_generate_command(app, generate_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kBadArguments;
  }
  if (app.get_subcommands().empty()) {
    std::cerr << "a subcommand is needed: info, verify, bench or generate; --help says more\n";
    return kBadArguments;
  }
  if (info->parsed()) return tilewise::tools::run_info(info_options, std::cout);
  if (verify->parsed()) return tilewise::verify::run_verify(verify_options, std::cout, std::cerr);
  if (bench->parsed()) return tilewise::bench::run_bench(bench_options, std::cout, std::cerr);
  return tilewise::generate::run_generate(generate_options, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "tilewise: " << error.what() << '\n';
    return kFailed;
  }
}
