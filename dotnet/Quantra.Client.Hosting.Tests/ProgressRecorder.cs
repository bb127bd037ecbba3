namespace Quantra.Client.Hosting.Tests;

/// <summary>Records the progress of a training.</summary>
internal sealed class ProgressRecorder(Action<TrainingProgress>? also = null) : IProgress<TrainingProgress>
{
    public List<TrainingProgress> All { get; } = [];

    public void Report(TrainingProgress value)
    {
        All.Add(value);
        also?.Invoke(value);
    }
}
