using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>Interprets the output lines of a training, which docs/training-loop.md describes.</summary>
internal static class TrainingOutput
{
    /// <summary>Returns the progress in a line; null if there is none, or if its kind is unknown.</summary>
    public static TrainingProgress? Progress(JsonLine line) => line.Text("kind") switch
    {
        "stage" => line.Text("stage") is { } text ? new TrainingStage(text) : null,
        "warning" => line.Text("warning") is { } text ? new TrainingNotice(text, IsWarning: true) : null,
        "notice" => line.Text("message") is { } text ? new TrainingNotice(text, IsWarning: false) : null,
        "checkpoint" => line.Text("folder") is { } folder ? new TrainingCheckpoint(folder, line.Text("problem")) : null,
        "window" => Step(line),
        "epoch" => Epoch(line),
        _ => null,
    };

    /// <summary>Returns the trained model in a line, or null.</summary>
    public static TrainingResult? Result(JsonLine line) => (line.Text("kind"), line.Text("artifact")) switch
    {
        ("trained", { } artifact) => new(artifact, line.Inner("card")?.ToString(), line.Inner("card")?.Inner("skill")?.Text("sentence"), WasThere: false),
        ("finished", { } artifact) => new(artifact, null, null, WasThere: true),
        _ => null,
    };

    /// <summary>Returns the message of a training that a signal stopped, or null.</summary>
    public static string? Stopped(JsonLine line) => line.Text("kind") == "stopped" ? line.Text("message") : null;

    /// <summary>Returns the error in a line, or null.</summary>
    public static QuantraError? Error(JsonLine line)
    {
        if (line.Inner("error") is not { } error || error.Text("reason") is not { } reason || error.Text("message") is not { } message)
            return null;
        var name = (error.Text("status") ?? "").Replace("_", "", StringComparison.Ordinal);
        var status = Enum.TryParse<QuantraStatus>(name, ignoreCase: true, out var found) ? found : QuantraStatus.Unknown;
        return new QuantraError(status, reason, message, error.Inner("metadata")?.ReadTextsByName() ?? new Dictionary<string, string>());
    }

    private static TrainingStep? Step(JsonLine line) =>
        line.Integer("epoch") is { } epoch && line.Integer("epochs") is { } epochs && line.Integer("window") is { } window
            ? new TrainingStep(
                epoch,
                epochs,
                window,
                line.Integer("windows"),
                Number(line, "loss"),
                Number(line, "grad_norm"),
                Number(line, "learning_rate"),
                !line.IsTrue("stepped"))
            : null;

    private static TrainingEpoch? Epoch(JsonLine line)
    {
        if (line.Integer("epoch") is not { } epoch || line.Integer("epochs") is not { } epochs)
            return null;
        var phases = line.Inner("phases");
        var first = phases?.Names().FirstOrDefault() is { } name ? phases.Inner(name) : null;
        return new TrainingEpoch(epoch, epochs, Number(first, "loss"), Number(line.Inner("validation"), "mean"), Number(line, "seconds"));
    }

    /// <summary>Returns a number; NaN if it is missing. JSON has no NaN, so a number that is not finite is missing too.</summary>
    private static double Number(JsonLine? line, string name) => line?.Number(name) ?? double.NaN;
}
