using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>Builds the command line of a training.</summary>
internal static class TrainingCommand
{
    private static readonly string[] Reserved = ["--bars", "--out", "--model", "--calendar", "--resume", "--json", "--parent-watch"];

    /// <exception cref="ArgumentException">A property is missing, or Arguments contains a flag that has its own property.</exception>
    public static void Validate(StockTraining training)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(training.Bars, "training.Bars");
        ArgumentException.ThrowIfNullOrWhiteSpace(training.Out, "training.Out");
        ArgumentNullException.ThrowIfNull(training.Arguments, "training.Arguments");
        if (training.Arguments.Any(argument => argument is null))
            throw new ArgumentException("Arguments contains null", nameof(training));
        if (training.Arguments.FirstOrDefault(argument => Reserved.Contains(argument.Split('=')[0])) is { } flag)
            throw new ArgumentException($"Arguments contains {flag}, which a property or the trainer sets; remove it", nameof(training));
    }

    /// <exception cref="QuantraException">CONFIGURATION_INVALID: no Python environment was found.</exception>
    public static PythonCommand Create(StockTraining training, QuantraTrainerOptions options) => new(
        PythonEnvironment.Find(options.PythonEnvironment),
        [.. TrainArguments(training), .. ListOptionalArguments(training), .. training.Arguments],
        options.Environment.AsReadOnly());

    private static string[] TrainArguments(StockTraining training) =>
    [
        "-P", "-m", "trainers.cli", "train", "stock", "--json", "--parent-watch", $"--bars={training.Bars}", $"--out={training.Out}",
    ];

    private static IEnumerable<string> ListOptionalArguments(StockTraining training)
    {
        if (training.Model is { } model)
            yield return $"--model={model}";
        if (training.Calendar is { } calendar)
            yield return $"--calendar={calendar}";
        if (training.Resume)
            yield return "--resume";
    }
}
