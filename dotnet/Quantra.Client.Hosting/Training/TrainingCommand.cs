using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>How a training's process is started.</summary>
internal static class TrainingCommand
{
    private static readonly string[] Reserved = ["--bars", "--out", "--model", "--calendar", "--resume", "--json", "--parent-watch"];

    /// <summary>Refuses a training that cannot be.</summary>
    /// <exception cref="ArgumentException">Naming what is missing, or has a property of its own.</exception>
    public static void Check(StockTraining training)
    {
        ArgumentException.ThrowIfNullOrWhiteSpace(training.Bars, "training.Bars");
        ArgumentException.ThrowIfNullOrWhiteSpace(training.Out, "training.Out");
        ArgumentNullException.ThrowIfNull(training.Arguments, "training.Arguments");
        if (training.Arguments.Any(one => one is null))
            throw new ArgumentException("Arguments has null among its texts", nameof(training));
        if (training.Arguments.FirstOrDefault(one => Reserved.Contains(one.Split('=')[0])) is { } flag)
            throw new ArgumentException($"Arguments has {flag}, which is set by a property, or by the trainer itself; leave it out", nameof(training));
    }

    /// <summary>The command of a training.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: there is no Python environment.</exception>
    public static PythonCommand Of(StockTraining training, QuantraTrainerOptions options) => new(
        PythonEnvironment.Find(options.PythonEnvironment),
        [.. Train(training), .. Chosen(training), .. training.Arguments],
        options.Environment.AsReadOnly());

    private static string[] Train(StockTraining training) =>
    [
        "-P", "-m", "trainers.cli", "train", "stock", "--json", "--parent-watch", $"--bars={training.Bars}", $"--out={training.Out}",
    ];

    private static IEnumerable<string> Chosen(StockTraining training)
    {
        if (training.Model is { } model)
            yield return $"--model={model}";
        if (training.Calendar is { } calendar)
            yield return $"--calendar={calendar}";
        if (training.Resume)
            yield return "--resume";
    }
}
