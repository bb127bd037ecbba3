namespace Quantra.Client.Hosting;

/// <summary>
/// What a training tells while it goes on: a <see cref="TrainingStage"/>, <see cref="TrainingStep"/>, <see cref="TrainingEpoch"/>,
/// <see cref="TrainingCheckpoint"/> or <see cref="TrainingNotice"/>. Each prints as one line, the same in every culture.
/// </summary>
public abstract record TrainingProgress;
