using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>Follows one training: reads its output and determines its result.</summary>
/// <param name="progress">Receives the progress.</param>
/// <param name="token">The caller's token.</param>
internal sealed class TrainingRun(IProgress<TrainingProgress>? progress, CancellationToken token)
{
    private TrainingResult? _result;
    private QuantraError? _error;
    private string? _stopped;
    private string? _checkpoint;

    /// <exception cref="TrainingCanceledException">The training was cancelled before its start.</exception>
    public void ThrowIfCancelled(CancellationToken linkedToken)
    {
        if (linkedToken.IsCancellationRequested)
            throw new TrainingCanceledException("the training was cancelled before it started", null, token);
    }

    /// <summary>Processes a line of standard output.</summary>
    public void ReadLine(string outputLine)
    {
        if (JsonLine.Parse(outputLine) is not { } line)
            return;
        _result ??= TrainingOutput.Result(line);
        _error ??= TrainingOutput.Error(line);
        _stopped ??= TrainingOutput.Stopped(line);
        if (TrainingOutput.Progress(line) is not { } report)
            return;
        if (report is TrainingCheckpoint { Problem: null, Folder: var folder })
            _checkpoint = folder;
        progress?.Report(report);
    }

    /// <summary>Returns the result or throws the error.</summary>
    /// <exception cref="TrainingCanceledException">The training was cancelled, or stopped by a signal.</exception>
    /// <exception cref="QuantraException">The training failed.</exception>
    public TrainingResult GetResult(PythonEnvironment environment, int exitCode, IReadOnlyList<string> errors, bool isCancelled)
    {
        if (exitCode == 0 && _result is not null)
            return _result;
        if (_stopped is not null || isCancelled)
            throw new TrainingCanceledException($"{_stopped ?? "the training was stopped"}; {DescribeCheckpoint()}", _checkpoint, token);
        throw ProcessError.ToException(_error
            ?? ProcessError.OfEnvironment(environment, errors, exitCode)
            ?? ProcessError.Of(
                QuantraStatus.Internal,
                QuantraReason.Internal,
                $"the training ended without a result, {ProcessError.Ending(exitCode, errors)}",
                errors,
                exitCode));
    }

    private string DescribeCheckpoint() => _checkpoint is null
        ? "it wrote no checkpoint"
        : $"set Resume to continue from {_checkpoint}";
}
