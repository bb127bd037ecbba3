using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>Trains a model on a file of bars, beside everything else that the window does.</summary>
public sealed class TrainingViewModel : Observable
{
    private readonly QuantraTrainer _trainer;
    private CancellationTokenSource? _source;
    private string _text = "";
    private double _share;

    /// <param name="trainer">It stays the caller's.</param>
    public TrainingViewModel(QuantraTrainer trainer)
    {
        _trainer = trainer;
        Cancel = new AsyncCommand(() => _source?.CancelAsync() ?? Task.CompletedTask, () => IsRunning);
    }

    /// <summary>Whether a training goes on.</summary>
    public bool IsRunning => _source is not null;

    /// <summary>What it does, or how it ended.</summary>
    public string Text
    {
        get => _text;
        private set => Set(ref _text, value);
    }

    /// <summary>How much of all epochs is done; it may end before, when no epoch is better for a while.</summary>
    /// <value>0 to 1.</value>
    public double Share
    {
        get => _share;
        private set => Set(ref _share, value);
    }

    /// <summary>Stops it, with a checkpoint from which it can go on.</summary>
    public AsyncCommand Cancel { get; }

    /// <summary>Trains.</summary>
    /// <returns>Whether there is a new model.</returns>
    /// <exception cref="QuantraException">It failed; the message is the trainer's own.</exception>
    public async Task<bool> TrainAsync(StockTraining training)
    {
        if (IsRunning)
            return false;
        using var source = new CancellationTokenSource();
        Begin(source);
        try
        {
            var result = await _trainer.TrainAsync(training, new Progress<TrainingProgress>(Show), source.Token);
            Text = result.ToString();
            return true;
        }
        catch (TrainingCanceledException stopped)
        {
            Text = stopped.Message;
            return false;
        }
        finally
        {
            Begin(null);
        }
    }

    private void Begin(CancellationTokenSource? source)
    {
        _source = source;
        Share = 0;
        Tell(nameof(IsRunning));
        Cancel.Refresh();
    }

    private void Show(TrainingProgress progress)
    {
        if (!IsRunning)
            return; // what comes after the end
        Text = progress.ToString()!;
        if (progress is TrainingStep { Share: { } share })
            Share = share;
    }
}
