using Quantra.Client;
using Quantra.Client.Hosting;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>Trains a model on a file of bars in the background.</summary>
public sealed class TrainingViewModel : ObservableObject
{
    private readonly QuantraTrainer _trainer;
    private CancellationTokenSource? _source;
    private string _text = "";
    private double _share;

    /// <param name="trainer">The trainer. The caller disposes it.</param>
    public TrainingViewModel(QuantraTrainer trainer)
    {
        _trainer = trainer;
        Cancel = new AsyncCommand(() => _source?.CancelAsync() ?? Task.CompletedTask, () => IsRunning);
    }

    /// <summary>Whether a training is running.</summary>
    public bool IsRunning => _source is not null;

    /// <summary>The latest progress, or the result.</summary>
    public string Text
    {
        get => _text;
        private set => Set(ref _text, value);
    }

    /// <summary>Completed share of all epochs. Training may stop early.</summary>
    /// <value>0 to 1.</value>
    public double Share
    {
        get => _share;
        private set => Set(ref _share, value);
    }

    /// <summary>Stops the training after writing a checkpoint.</summary>
    public AsyncCommand Cancel { get; }

    /// <returns>Whether there is a new model.</returns>
    /// <exception cref="QuantraException">The training failed.</exception>
    public async Task<bool> TrainAsync(StockTraining training)
    {
        if (IsRunning)
            return false;
        using var source = new CancellationTokenSource();
        SetSource(source);
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
            SetSource(null);
        }
    }

    private void SetSource(CancellationTokenSource? source)
    {
        _source = source;
        Share = 0;
        OnPropertyChanged(nameof(IsRunning));
        Cancel.Refresh();
    }

    private void Show(TrainingProgress progress)
    {
        if (!IsRunning)
            return; // progress that arrives after the end
        Text = progress.ToString()!;
        if (progress is TrainingStep { Share: { } share })
            Share = share;
    }
}
